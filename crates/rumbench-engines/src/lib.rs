//! The engines that rumbench can drive.
