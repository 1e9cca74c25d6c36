// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tensors of one micro-batch in one buffer, for any transport.
use crate::raw::{check, made, options, sized, slice, string, text};
use crate::tensor::{shape_of, values_of};
use crate::{Element, Result, Tag, Tensor};
use core::marker::PhantomData;
use core::mem::size_of;
use core::ops::Deref;
use core::ptr;
use outrigger_sys::*;
use std::ffi::CString;

/// What goes along with a message's tensors.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageOptions<'a> {
    /// The host's number for it, 0 or more.
    pub micro_batch: i64,
    /// What was applied to gradients ([`Pass::tag`](crate::Pass::tag)).
    pub tag: Option<Tag>,
    /// Texts of the host's, each with a name.
    pub attributes: &'a [(&'a str, &'a str)],
}

/// A message's bytes, at an address that it can be read at.
#[derive(Clone, Debug)]
pub struct Packed {
    words: Vec<u64>,
    size: usize,
}

impl Packed {
    fn room(size: usize) -> Self {
        Self {
            words: vec![0; size.div_ceil(size_of::<u64>())],
            size,
        }
    }

    /// A copy of bytes that came from somewhere.
    pub fn copied(bytes: &[u8]) -> Self {
        let mut packed = Self::room(bytes.len());
        // SAFETY: there is room for these bytes, which do not overlap it.
        unsafe {
            ptr::copy_nonoverlapping(
                bytes.as_ptr(),
                packed.words.as_mut_ptr().cast(),
                bytes.len(),
            )
        };
        packed
    }
}

impl Deref for Packed {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the words have so many bytes, all of them set.
        unsafe { slice(self.words.as_ptr().cast(), self.size) }
    }
}

/// A message that is read where it lies.
pub struct Message<'a> {
    raw: *mut otr_message,
    bytes: PhantomData<&'a [u8]>,
}

// SAFETY: what takes &self is marked "any thread", and nobody writes the bytes.
unsafe impl Send for Message<'_> {}
unsafe impl Sync for Message<'_> {}

impl Drop for Message<'_> {
    fn drop(&mut self) {
        // SAFETY: given back once.
        unsafe { otr_message_destroy(self.raw) }
    }
}

// SAFETY of the calls below: the message and its bytes live, texts and tensors outlive the calls.
impl<'a> Message<'a> {
    /// Copies tensors, each with a name of its own, into a message.
    pub fn pack(tensors: &[(&str, Tensor)], asked: &MessageOptions) -> Result<Packed> {
        let names = tensors
            .iter()
            .map(|each| text(each.0))
            .collect::<Result<Vec<CString>>>()?;
        let pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
        let raw: Vec<otr_tensor> = tensors.iter().map(|each| each.1.raw()).collect();
        let kept = asked
            .attributes
            .iter()
            .map(|each| Ok((text(each.0)?, text(each.1)?)))
            .collect::<Result<Vec<(CString, CString)>>>()?;
        let attributes: Vec<otr_message_attribute> = kept
            .iter()
            .map(|(name, text)| otr_message_attribute {
                name: name.as_ptr(),
                text: text.as_ptr(),
            })
            .collect();
        let mut tag = options(otr_call_info_init)?;
        let mut wanted = options(otr_message_options_init)?;
        wanted.micro_batch = asked.micro_batch;
        if let Some(given) = asked.tag {
            given.put(&mut tag);
            wanted.tag = &tag;
        }
        if !attributes.is_empty() {
            wanted.attributes = attributes.as_ptr();
            wanted.attribute_count = attributes.len() as i64;
        }
        let pack = |buffer: *mut u64, size: &mut usize| {
            check(unsafe {
                otr_message_pack(
                    pointers.as_ptr(),
                    raw.as_ptr(),
                    raw.len() as i64,
                    &wanted,
                    buffer.cast(),
                    size,
                )
            })
        };
        let mut size = 0;
        pack(ptr::null_mut(), &mut size)?;
        let mut packed = Packed::room(size);
        pack(packed.words.as_mut_ptr(), &mut size)?;
        Ok(packed)
    }

    /// Checks a message, which may come from anybody, and makes it readable. The bytes begin at a multiple of 8: those of [`Packed`] do.
    /// [`Error::Corrupt`](crate::Error): damaged, cut short, or no message.
    pub fn unpack(bytes: &'a [u8]) -> Result<Self> {
        let raw =
            made(|out| unsafe { otr_message_unpack(bytes.as_ptr().cast(), bytes.len(), 0, out) })?;
        Ok(Self {
            raw,
            bytes: PhantomData,
        })
    }

    fn info(&self) -> Result<otr_message_info> {
        let mut info = sized!(otr_message_info);
        check(unsafe { otr_message_get_info(self.raw, &mut info) })?;
        Ok(info)
    }

    /// The host's number for it.
    pub fn micro_batch(&self) -> Result<i64> {
        self.info().map(|info| info.micro_batch)
    }

    /// The tensors' names, in the order of their bytes.
    pub fn names(&self) -> Result<Vec<String>> {
        let name = |index| made(|out| unsafe { otr_message_tensor_name(self.raw, index, out) });
        (0..self.info()?.tensor_count)
            .map(|index| Ok(unsafe { string(name(index)?) }))
            .collect()
    }

    /// A tensor's elements, row-major. [`Error::NotFound`](crate::Error) has the nearest name.
    pub fn get<T: Element>(&self, name: &str) -> Result<&[T]> {
        let tensor = self.tensor(name)?;
        // SAFETY: the library refuses a message whose elements are not at multiples of their size.
        unsafe { values_of(&tensor) }
    }

    /// Its shape.
    pub fn shape(&self, name: &str) -> Result<Vec<usize>> {
        let tensor = self.tensor(name)?;
        Ok(unsafe { shape_of(&tensor) })
    }

    fn tensor(&self, name: &str) -> Result<otr_tensor> {
        let name = text(name)?;
        made(|out| unsafe { otr_message_get_tensor(self.raw, name.as_ptr(), out) })
    }

    /// What was applied to its gradients, for [`PassOptions::tag`](crate::PassOptions::tag).
    pub fn tag(&self) -> Result<Option<Tag>> {
        let mut info = options(otr_call_info_init)?;
        check(unsafe { otr_message_get_tag(self.raw, &mut info) })?;
        Ok((info.loss_scale != 0.0).then(|| Tag::of(&info)))
    }

    /// The text of this name.
    pub fn attribute(&self, name: &str) -> Result<String> {
        let name = text(name)?;
        made(|out| unsafe { otr_message_get_attribute(self.raw, name.as_ptr(), out) })
            .map(|text| unsafe { string(text) })
    }
}

/// Rows that rank `source` of one group has and rank `target` of another group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Route {
    /// Who has them.
    pub source: i32,
    /// Who needs them.
    pub target: i32,
    /// The first of them, in the rows of `source`.
    pub source_row: i64,
    /// The same in the rows of `target`.
    pub target_row: i64,
    /// How many.
    pub rows: i64,
}

/// Who sends what between two groups of any widths, by the rows of each rank.
pub fn routes(source_rows: &[i64], target_rows: &[i64]) -> Result<Vec<Route>> {
    let empty = otr_message_route {
        source: 0,
        target: 0,
        source_row: 0,
        target_row: 0,
        rows: 0,
    };
    let mut found = vec![empty; source_rows.len() + target_rows.len()];
    let mut count = found.len() as i64;
    let ranks = |rows: &[i64]| i32::try_from(rows.len()).unwrap_or(i32::MAX);
    // SAFETY: lengths are those of the slices.
    check(unsafe {
        otr_message_routes(
            source_rows.as_ptr(),
            ranks(source_rows),
            target_rows.as_ptr(),
            ranks(target_rows),
            found.as_mut_ptr(),
            &mut count,
        )
    })?;
    found.truncate(count as usize);
    let route = |raw: &otr_message_route| Route {
        source: raw.source,
        target: raw.target,
        source_row: raw.source_row,
        target_row: raw.target_row,
        rows: raw.rows,
    };
    Ok(found.iter().map(route).collect())
}
