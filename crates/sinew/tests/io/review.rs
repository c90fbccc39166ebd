//! Cases that a review found.
