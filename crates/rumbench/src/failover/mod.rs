//! Failovers: the primary of two servers loses power under load, the replica is promoted, and every
//! commit that a client was told of, or that a reader saw, is looked for.
//!
//! A round begins with two copies of one prepared folder ([`round`]). Between them is a network
//! that delays and can be cut ([`relay`]). Writers note what was acknowledged and readers what they
//! saw, outside of the servers ([`clients`]); after the promotion the [`judge`] compares. Rounds of
//! one mode are summed up next to what the product promises ([`result`]).

pub mod clients;
pub mod judge;
pub mod relay;
pub mod result;
pub mod round;
