// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensors over slices, and slices over tensors.
use core::marker::PhantomData;
use core::ptr;
use outrigger_sys::*;

/// An element type that the library knows.
pub trait Element: Copy {
    const DTYPE: otr_dtype;
}
const fn float(bits: u8) -> otr_dtype {
    otr_dtype {
        code: OTR_DTYPE_FLOAT as u8,
        bits,
        lanes: 1,
    }
}
impl Element for f32 {
    const DTYPE: otr_dtype = float(32);
}
impl Element for f64 {
    const DTYPE: otr_dtype = float(64);
}
/// The bits of a bfloat16.
#[derive(Clone, Copy, Default)]
pub struct Bf16(pub u16);
impl Element for Bf16 {
    const DTYPE: otr_dtype = otr_dtype {
        code: OTR_DTYPE_BFLOAT as u8,
        bits: 16,
        lanes: 1,
    };
}
/// The other half of a split master.
impl Element for u16 {
    const DTYPE: otr_dtype = otr_dtype {
        code: OTR_DTYPE_UINT as u8,
        bits: 16,
        lanes: 1,
    };
}

/// A row-major tensor over a slice. The library reads its shape during a call only.
pub struct Tensor<'a> {
    pub raw: otr_tensor,
    borrowed: PhantomData<&'a mut ()>,
}

impl Tensor<'_> {
    /// A tensor that the library handed out; the caller's signature says what it borrows.
    pub fn from_raw(raw: otr_tensor) -> Self {
        Tensor {
            raw,
            borrowed: PhantomData,
        }
    }
}

fn tensor<'a>(
    data: *mut core::ffi::c_void,
    dtype: otr_dtype,
    len: usize,
    shape: &'a [i64],
) -> Tensor<'a> {
    assert_eq!(
        len as i64,
        shape.iter().product::<i64>(),
        "shape and length differ"
    );
    let device = otr_device {
        device_type: OTR_DEVICE_CPU,
        device_id: 0,
    };
    let (ndim, shape) = (shape.len() as i32, shape.as_ptr() as *mut i64);
    let raw = otr_tensor {
        data,
        device,
        ndim,
        dtype,
        shape,
        strides: ptr::null_mut(),
        byte_offset: 0,
    };
    Tensor {
        raw,
        borrowed: PhantomData,
    }
}
pub fn view<'a, T: Element>(data: &'a [T], shape: &'a [i64]) -> Tensor<'a> {
    tensor(data.as_ptr() as *mut _, T::DTYPE, data.len(), shape)
}
/// A shape without values.
pub fn nothing(shape: &[i64]) -> Tensor<'_> {
    let count = shape.iter().product::<i64>() as usize;
    tensor(std::ptr::null_mut(), f32::DTYPE, count, shape)
}
pub fn view_mut<'a, T: Element>(data: &'a mut [T], shape: &'a [i64]) -> Tensor<'a> {
    tensor(data.as_mut_ptr().cast(), T::DTYPE, data.len(), shape)
}

impl Tensor<'_> {
    pub fn shape(&self) -> &[i64] {
        // SAFETY: shape has ndim entries; it may be NULL where there are none.
        unsafe { slice(self.raw.shape, self.raw.ndim as usize) }
    }
    pub fn is<T: Element>(&self) -> bool {
        (self.raw.dtype.code, self.raw.dtype.bits) == (T::DTYPE.code, T::DTYPE.bits)
    }
    fn len(&self) -> usize {
        self.shape().iter().product::<i64>() as usize
    }
    pub fn data<T: Element>(&self) -> &[T] {
        assert!(self.is::<T>());
        // SAFETY: the tensor is row-major, of this type, and lives as long as self.
        unsafe {
            slice(
                self.raw
                    .data
                    .cast::<u8>()
                    .add(self.raw.byte_offset as usize)
                    .cast(),
                self.len(),
            )
        }
    }
    pub fn data_mut<T: Element>(&mut self) -> &mut [T] {
        let (data, len) = (self.data::<T>().as_ptr() as *mut T, self.len());
        // SAFETY: as in data(); views for writing come from exclusive borrows or from a slot.
        unsafe { core::slice::from_raw_parts_mut(data, len) }
    }
}

/// SAFETY: `data` has `len` elements, or `len` is 0.
pub unsafe fn slice<'a, T>(data: *const T, len: usize) -> &'a [T] {
    if len == 0 {
        &[]
    } else {
        core::slice::from_raw_parts(data, len)
    }
}
