//! A signal as an arm of a select.

use super::Signal;
use super::post::Kind;
use crate::__select::{WaitArm, Waitable, sealed_waitable};
use crate::error::Cancelled;
use crate::sync::SequencerWait;
use crate::wait::select::{ArmRef, OperationArm};
use std::fmt;

/// The arm `wait(&mut signal)`.
#[doc(hidden)]
pub struct SignalArm<'a> {
    arm: OperationArm<SequencerWait<'static>>,
    of: &'static Kind,
    /// The receiver's, who has seen it if the arm is taken.
    seen: &'a mut u64,
}

impl sealed_waitable::Sealed for &mut Signal {}

impl<'a> Waitable for &'a mut Signal {
    type Output = ();
    type Arm = SignalArm<'a>;

    fn into_arm(self) -> SignalArm<'a> {
        SignalArm {
            arm: OperationArm::point(self.next_one().operation()),
            of: self.of,
            seen: &mut self.seen,
        }
    }
}

impl WaitArm for SignalArm<'_> {
    type Output = ();

    fn as_arm(&mut self) -> ArmRef<'_> {
        ArmRef::new(&self.arm)
    }

    fn take(self) -> Result<(), Cancelled> {
        self.arm.take()?;
        *self.seen = self.of.count.get();
        Ok(())
    }
}

impl fmt::Debug for SignalArm<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SignalArm")
    }
}
