// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensors over slices, and slices over the library's tensors.
use crate::raw::slice;
use crate::{Error, Result};
use core::ffi::c_void;
use core::marker::PhantomData;
use core::ptr;
use outrigger_sys::*;

mod sealed {
    pub trait Sealed {}
}

/// An element type that the library knows: `f32`, `f64`, and with the feature `half` `half::bf16` and `half::f16`; whole numbers are for
/// messages, and `u16` is the other half of a split master.
pub trait Element: Copy + Send + Sync + sealed::Sealed + 'static {
    /// "float32", "bfloat16" …
    const NAME: &'static str;
    #[doc(hidden)]
    const DTYPE: otr_dtype;
}

macro_rules! element {
    ($type:ty, $name:literal, $code:expr, $bits:literal) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const NAME: &'static str = $name;
            const DTYPE: otr_dtype = otr_dtype {
                code: $code as u8,
                bits: $bits,
                lanes: 1,
            };
        }
    };
}
element!(f32, "float32", OTR_DTYPE_FLOAT, 32);
element!(f64, "float64", OTR_DTYPE_FLOAT, 64);
element!(i8, "int8", OTR_DTYPE_INT, 8);
element!(i16, "int16", OTR_DTYPE_INT, 16);
element!(i32, "int32", OTR_DTYPE_INT, 32);
element!(i64, "int64", OTR_DTYPE_INT, 64);
element!(u8, "uint8", OTR_DTYPE_UINT, 8);
element!(u16, "uint16", OTR_DTYPE_UINT, 16);
element!(u32, "uint32", OTR_DTYPE_UINT, 32);
element!(u64, "uint64", OTR_DTYPE_UINT, 64);
#[cfg(feature = "half")]
element!(half::f16, "float16", OTR_DTYPE_FLOAT, 16);
#[cfg(feature = "half")]
element!(half::bf16, "bfloat16", OTR_DTYPE_BFLOAT, 16);

const INLINE: usize = 8;

/// A shape, and strides if there are any; without an allocation up to 8 dimensions.
#[derive(Clone)]
enum Extents {
    Inline([i64; INLINE], usize),
    Heap(Vec<i64>),
}

impl Extents {
    fn new(extents: impl ExactSizeIterator<Item = i64>) -> Self {
        let count = extents.len();
        if count > INLINE {
            return Self::Heap(extents.collect());
        }
        let mut kept = [0; INLINE];
        for (place, extent) in kept.iter_mut().zip(extents) {
            *place = extent;
        }
        Self::Inline(kept, count)
    }
    fn get(&self) -> &[i64] {
        match self {
            Self::Inline(kept, count) => &kept[..*count],
            Self::Heap(kept) => kept,
        }
    }
}

fn elements(shape: &[usize]) -> Option<usize> {
    // An extent of 0 leaves none, whatever the others are.
    if shape.contains(&0) {
        return Some(0);
    }
    shape
        .iter()
        .try_fold(1_usize, |all, &each| all.checked_mul(each))
}

fn extents(shape: &[usize]) -> Result<Extents> {
    if let Some(large) = shape.iter().find(|&&each| i64::try_from(each).is_err()) {
        return Err(Error::Shape(format!(
            "an extent is {large}; the most is {}",
            i64::MAX
        )));
    }
    Ok(Extents::new(shape.iter().map(|&each| each as i64)))
}

fn check_length(length: usize, shape: &[usize]) -> Result<()> {
    match elements(shape) {
        Some(count) if count == length => Ok(()),
        count => Err(Error::Shape(format!(
            "a slice of {length} elements has not the shape {shape:?}, which has {}",
            count.map_or("more than there can be".into(), |count| count.to_string())
        ))),
    }
}

/// Values that the library reads: a slice with a shape, or a part of one with strides.
#[derive(Clone)]
pub struct Tensor<'a> {
    data: *mut c_void,
    dtype: otr_dtype,
    shape: Extents,
    strides: Option<Extents>,
    borrowed: PhantomData<&'a ()>,
}

// SAFETY: it is a shared slice of elements, which are Sync.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    /// Row-major. [`Error::Shape`]: the slice has another number of elements.
    pub fn new<T: Element>(data: &'a [T], shape: &[usize]) -> Result<Self> {
        check_length(data.len(), shape)?;
        Ok(Self::over(data.as_ptr(), extents(shape)?, None))
    }

    /// One value, without dimensions: `Tensor::scalar(&1.0_f32)` is a loss's gradient.
    pub fn scalar<T: Element>(value: &'a T) -> Self {
        Self::over(value, Extents::new([].into_iter()), None)
    }

    /// With strides in elements, from the slice's beginning on. [`Error::Shape`]: it would go beyond the slice.
    pub fn strided<T: Element>(data: &'a [T], shape: &[usize], strides: &[usize]) -> Result<Self> {
        if shape.len() != strides.len() {
            return Err(Error::Shape(format!(
                "the shape {shape:?} and the strides {strides:?} have not as many entries"
            )));
        }
        let last = shape
            .iter()
            .zip(strides)
            .try_fold(0_usize, |all, (&extent, &stride)| {
                extent
                    .saturating_sub(1)
                    .checked_mul(stride)?
                    .checked_add(all)
            });
        let empty = shape.contains(&0);
        if !empty && !last.is_some_and(|last| last < data.len()) {
            return Err(Error::Shape(format!(
                "the shape {shape:?} with strides {strides:?} goes beyond a slice of {} elements",
                data.len()
            )));
        }
        Ok(Self::over(
            data.as_ptr(),
            extents(shape)?,
            Some(extents(strides)?),
        ))
    }

    /// A shape without values, for [`Plan::parameter`](crate::Plan::parameter): they come later.
    pub fn unknown(shape: &[usize]) -> Result<Tensor<'static>> {
        Ok(Tensor::over::<f32>(ptr::null(), extents(shape)?, None))
    }

    fn over<T: Element>(data: *const T, shape: Extents, strides: Option<Extents>) -> Self {
        Self {
            data: data.cast_mut().cast(),
            dtype: T::DTYPE,
            shape,
            strides,
            borrowed: PhantomData,
        }
    }

    /// What the library takes during a call, in which self is borrowed.
    pub(crate) fn raw(&self) -> otr_tensor {
        let extents = |kept: &Extents| kept.get().as_ptr().cast_mut();
        otr_tensor {
            data: self.data,
            device: otr_device {
                device_type: OTR_DEVICE_CPU,
                device_id: 0,
            },
            ndim: self.shape.get().len() as i32,
            dtype: self.dtype,
            shape: extents(&self.shape),
            strides: self.strides.as_ref().map_or(ptr::null_mut(), extents),
            byte_offset: 0,
        }
    }
}

/// Memory that the library writes into: a slice with a shape, row-major.
pub struct TensorMut<'a> {
    view: Tensor<'a>,
    exclusive: PhantomData<&'a mut ()>,
}

impl<'a> TensorMut<'a> {
    /// [`Error::Shape`]: the slice has another number of elements.
    pub fn new<T: Element>(data: &'a mut [T], shape: &[usize]) -> Result<Self> {
        check_length(data.len(), shape)?;
        Ok(Self {
            view: Tensor::over(data.as_mut_ptr(), extents(shape)?, None),
            exclusive: PhantomData,
        })
    }

    pub(crate) fn raw(&mut self) -> otr_tensor {
        self.view.raw()
    }
}

pub(crate) fn counts(extents: &[i64]) -> Vec<usize> {
    extents.iter().map(|&extent| extent as usize).collect()
}

/// # Safety
/// The tensor's shape lives during the call.
pub(crate) unsafe fn shape_of(tensor: &otr_tensor) -> Vec<usize> {
    counts(slice(tensor.shape, tensor.ndim as usize))
}

/// # Safety
/// As of [`elements_of`], for 'a.
pub(crate) unsafe fn values_of<'a, T: Element>(tensor: &otr_tensor) -> Result<&'a [T]> {
    elements_of::<T>(tensor).map(|(data, count)| slice(data.cast_const(), count))
}

/// The elements of a tensor that the library handed out, and where they are.
///
/// # Safety
/// It is row-major, at a multiple of its elements' size, and lives and stays as it is for what the caller makes of it.
pub(crate) unsafe fn elements_of<T: Element>(tensor: &otr_tensor) -> Result<(*mut T, usize)> {
    let (have, want) = (tensor.dtype, T::DTYPE);
    if (have.code, have.bits) != (want.code, want.bits) {
        return Err(Error::Dtype(format!(
            "the tensor is {}, and was asked for as {}",
            name_of(have),
            T::NAME
        )));
    }
    if tensor.device.device_type != OTR_DEVICE_CPU {
        return Err(Error::Device(format!(
            "the tensor is on device {} of type {}, where the host has no slice of it",
            tensor.device.device_id, tensor.device.device_type
        )));
    }
    let count = shape_of(tensor).iter().product();
    let data = tensor
        .data
        .cast::<u8>()
        .wrapping_add(tensor.byte_offset as usize);
    Ok((data.cast(), count))
}

fn name_of(dtype: otr_dtype) -> String {
    let kind = match dtype.code as i32 {
        OTR_DTYPE_FLOAT => "float",
        OTR_DTYPE_BFLOAT => "bfloat",
        OTR_DTYPE_INT => "int",
        OTR_DTYPE_UINT => "uint",
        _ => "bool",
    };
    format!("{kind}{}", dtype.bits)
}
