// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Candle's tensors for the library, and the library's for candle.
use crate::Result;
use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, DType, Device, InplaceOp1, Layout, Storage, Tensor, Var, WithDType};
use half::{bf16, f16};
use outrigger::{Acquired, Element, Error, Pass};

/// A view of a tensor where it lies, whatever its strides are: of what `storage_and_layout` gives.
pub(crate) fn view<'a>(storage: &'a Storage, layout: &Layout) -> Result<outrigger::Tensor<'a>> {
    fn of<'a, T: Element>(values: &'a [T], layout: &Layout) -> Result<outrigger::Tensor<'a>> {
        let values = values.get(layout.start_offset()..).unwrap_or_default();
        let (shape, strides) = (layout.dims(), layout.stride());
        Ok(outrigger::Tensor::strided(values, shape, strides)?)
    }
    let Storage::Cpu(storage) = storage else {
        return Err(elsewhere(&storage.device()).into());
    };
    match storage {
        CpuStorage::F32(values) => of(values, layout),
        CpuStorage::F64(values) => of(values, layout),
        CpuStorage::BF16(values) => of(values, layout),
        CpuStorage::F16(values) => of(values, layout),
        other => Err(no_float(other.dtype()).into()),
    }
}

/// The index-th scaled output gradient as a tensor like `output`. The pass keeps the dtype.
pub(crate) fn output_grad(pass: &Pass, index: usize, output: &Tensor) -> Result<Tensor> {
    fn of<T: Element + WithDType>(pass: &Pass, index: usize, output: &Tensor) -> Result<Tensor> {
        let values = pass.output_grad::<T>(index)?;
        Ok(Tensor::from_slice(values, output.shape(), output.device())?)
    }
    match output.dtype() {
        DType::F32 => of::<f32>(pass, index, output),
        // The library scales float64 in float32.
        DType::F64 => Ok(of::<f32>(pass, index, output)?.to_dtype(DType::F64)?),
        DType::BF16 => of::<bf16>(pass, index, output),
        DType::F16 => of::<f16>(pass, index, output),
        other => Err(no_float(other).into()),
    }
}

/// Whether the library keeps such parameters.
pub(crate) fn is_parameter(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64 | DType::BF16 | DType::F16)
}

/// Copies a parameter's weight into a Var of its shape: once, where the Var has the compute dtype.
pub(crate) fn copy_weight(
    engine: &outrigger::Engine,
    id: outrigger::ParameterId,
    var: &Var,
) -> Result<()> {
    let weights = engine.acquire(&[id])?;
    if dtype_of(&weights)? == Some(var.dtype()) {
        return Ok(var.inplace_op1(&Weight(&weights))?);
    }
    drop(weights);
    Ok(var.inplace_op1(&Weight(&engine.acquire_float32(&[id])?))?)
}

fn dtype_of(weights: &Acquired) -> Result<Option<DType>> {
    use outrigger::sys::{OTR_DTYPE_BFLOAT, OTR_DTYPE_FLOAT};
    let dtype = weights.as_raw(0)?.dtype;
    Ok(match (i32::from(dtype.code), dtype.bits) {
        (OTR_DTYPE_FLOAT, 32) => Some(DType::F32),
        (OTR_DTYPE_FLOAT, 64) => Some(DType::F64),
        (OTR_DTYPE_FLOAT, 16) => Some(DType::F16),
        (OTR_DTYPE_BFLOAT, 16) => Some(DType::BF16),
        _ => None,
    })
}

/// The first acquired weight, in the Var's dtype or in float32, for the memory of a Var.
struct Weight<'a>(&'a Acquired<'a>);

impl InplaceOp1 for Weight<'_> {
    fn name(&self) -> &'static str {
        "outrigger-publish"
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> candle_core::Result<()> {
        match storage {
            CpuStorage::F32(values) => self.copy(values, layout, |value| value),
            CpuStorage::F64(values) => self.copy(values, layout, f64::from),
            CpuStorage::BF16(values) => self.copy(values, layout, bf16::from_f32),
            CpuStorage::F16(values) => self.copy(values, layout, f16::from_f32),
            other => Err(candle_core::Error::wrap(no_float(other.dtype()))),
        }
    }
}

impl Weight<'_> {
    fn copy<T: Element>(
        &self,
        values: &mut [T],
        layout: &Layout,
        convert: impl Fn(f32) -> T,
    ) -> candle_core::Result<()> {
        let wrap = candle_core::Error::wrap;
        let (first, end) = layout
            .contiguous_offsets()
            .ok_or_else(|| candle_core::Error::msg("a Var is contiguous"))?;
        let values = &mut values[first..end];
        if let Ok(weight) = self.0.get::<T>(0) {
            values.copy_from_slice(weight);
        } else {
            let weight = self.0.get::<f32>(0).map_err(wrap)?;
            for (value, &weight) in values.iter_mut().zip(weight) {
                *value = convert(weight);
            }
        }
        Ok(())
    }
}

pub(crate) fn elsewhere(device: &Device) -> Error {
    Error::Device(format!(
        "a tensor is on {device:?}, and this crate reads the host's memory only; make the model on Device::Cpu"
    ))
}

pub(crate) fn no_float(dtype: DType) -> Error {
    Error::Dtype(format!(
        "a tensor is {dtype:?}; parameters and gradients are F32, F64, BF16 or F16"
    ))
}
