//! Lists of errors: what a check found, where it goes on after the first.

use alluvium::Error;

use crate::call::quietly;
use crate::error::alluvium_error;

/// A list of errors. Those that are part of a report live as long as it does and are not freed.
pub struct alluvium_error_list(Vec<alluvium_error>);

impl alluvium_error_list {
    pub(crate) fn new(errors: &[Error]) -> alluvium_error_list {
        alluvium_error_list(errors.iter().map(alluvium_error::new).collect())
    }
}

/// How many errors it has.
#[unsafe(no_mangle)]
pub extern "C" fn alluvium_error_list_count(list: Option<&alluvium_error_list>) -> usize {
    list.map_or(0, |list| list.0.len())
}

/// The error with this index, counted from 0; NULL if there are not so many. It lives as long as the list and is not
/// freed.
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
