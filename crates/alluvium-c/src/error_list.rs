//! Lists of errors, for checks that continue after the first error.

use alluvium::Error;

use crate::call::quietly;
use crate::error::alluvium_error;

/// A list of errors. A list that is part of a report lives as long as the report and is not freed.
pub struct alluvium_error_list(Vec<alluvium_error>);

impl alluvium_error_list {
    pub(crate) fn new(errors: &[Error]) -> alluvium_error_list {
        alluvium_error_list(errors.iter().map(alluvium_error::new).collect())
    }
}

/// Returns the number of errors in the list; 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_list_count(list: Option<&alluvium_error_list>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// Returns the error at this index, counted from 0; NULL if the index is out of range. It lives as
/// long as the list and is not freed.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_list_item(
    list: Option<&alluvium_error_list>,
    index: usize,
) -> Option<&alluvium_error> {
    list.and_then(|list| list.0.get(index))
}

/// Frees a list and the errors in it.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_list_free(list: Option<Box<alluvium_error_list>>) {
    quietly(|| drop(list));
}
