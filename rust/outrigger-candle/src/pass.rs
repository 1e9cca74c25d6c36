// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Candle's backward inside a pass of the library.
use crate::tensors::view;
use crate::Result;
use candle_core::backprop::GradStore;
use candle_core::Tensor;
use outrigger::{Error, ParameterId, Pass, PassOptions, Tag};

/// The gradients that a backward gave, with the factors that they carry.
#[derive(Debug)]
pub struct Gradients {
    /// Of parameters, and of the model's inputs where these are Vars.
    pub store: GradStore,
    /// For the engine of the model that made the inputs: [`Engine::backward_from`](crate::Engine::backward_from) takes it.
    pub tag: Tag,
}

/// Begins a pass from the gradients of the outputs, which the library copies and scales.
pub(crate) fn begin<'e>(
    engine: &'e outrigger::Engine,
    outputs: &[(&Tensor, &Tensor)],
    tag: Option<Tag>,
) -> Result<Pass<'e>> {
    let grads = outputs
        .iter()
        .map(|(output, grad)| {
            if output.shape() != grad.shape() {
                let (output, grad) = (output.shape(), grad.shape());
                return Err(Error::Shape(format!(
                    "an output has the shape {output:?}, and its gradient {grad:?}; they have the same"
                ))
                .into());
            }
            Ok(grad.to_dtype(output.dtype())?)
        })
        .collect::<Result<Vec<_>>>()?;
    let kept: Vec<_> = grads.iter().map(Tensor::storage_and_layout).collect();
    let views = kept
        .iter()
        .map(|(storage, layout)| view(storage, layout))
        .collect::<Result<Vec<_>>>()?;
    let asked = PassOptions {
        tag,
        keep_dtype: true,
    };
    Ok(engine.pass_with(&views, &asked)?)
}

/// Candle's backward from the outputs, with the pass's scaled gradients: candle begins at one tensor, with ones.
pub(crate) fn gradients<'t>(
    outputs: impl IntoIterator<Item = (&'t Tensor, Tensor)>,
) -> Result<GradStore> {
    let mut root: Option<Tensor> = None;
    for (output, grad) in outputs {
        // Of sum(output * grad) the derivative by the output is grad, to the bit.
        let product = output.mul(&grad)?.flatten_all()?.sum(0)?;
        let product = product.to_dtype(candle_core::DType::F64)?;
        root = Some(match root {
            Some(sum) => (sum + product)?,
            None => product,
        });
    }
    let root = root.ok_or_else(|| {
        Error::Argument("a backward has no outputs; it begins at one or more".into())
    })?;
    Ok(root.backward()?)
}

/// Adds the gradients of these parameters where the store has them; says how many it had.
pub(crate) fn add<'t>(
    pass: &Pass,
    store: &GradStore,
    parameters: impl Iterator<Item = (ParameterId, &'t Tensor)>,
) -> Result<usize> {
    let mut added = 0;
    for (id, parameter) in parameters {
        if let Some(grad) = store.get(parameter) {
            let (storage, layout) = grad.storage_and_layout();
            pass.add_grad(id, &view(&storage, layout)?)?;
            added += 1;
        }
    }
    Ok(added)
}
