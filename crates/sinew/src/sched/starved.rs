//! The fibers of one worker that wait for a stack, by class; see `worker::starve`.

use crate::fiber::Block;
use crate::fiber::cancel::ChildPlace;
use crate::stack::StackClass;
use std::collections::VecDeque;
use std::ptr::NonNull;

/// A fiber that waits for a stack of its class.
pub(crate) struct Hungry {
    pub(crate) block: NonNull<Block>,
    /// Its place among the children of its nest, if it is to be a child.
    pub(crate) place: Option<ChildPlace>,
}

/// See the module header.
#[derive(Default)]
pub(crate) struct Starved {
    /// In the order of their coming. A handful of classes at most.
    hungry: Vec<(StackClass, VecDeque<Hungry>)>,
    /// Those that only want to end, on any small stack or the runtime's reserve.
    pub(crate) doomed: VecDeque<NonNull<Block>>,
}

impl Starved {
    fn line(&mut self, class: StackClass) -> Option<&mut VecDeque<Hungry>> {
        let line = self.hungry.iter_mut().find(|(known, _)| *known == class);
        line.map(|(_, line)| line)
    }

    pub(crate) fn push(&mut self, class: StackClass, hungry: Hungry) {
        match self.line(class) {
            Some(line) => line.push_back(hungry),
            None => self.hungry.push((class, VecDeque::from([hungry]))),
        }
    }

    /// Who of this class has waited longest.
    pub(crate) fn front(&mut self, class: StackClass) -> Option<NonNull<Block>> {
        self.line(class)?.front().map(|hungry| hungry.block)
    }

    pub(crate) fn pop(&mut self, class: StackClass) -> Option<Hungry> {
        self.line(class)?.pop_front()
    }

    /// Takes a fiber out that does not wait any more. Those that end together mostly end
    /// in the order they came in, so it is looked for from the front.
    pub(crate) fn remove(&mut self, class: StackClass, block: NonNull<Block>) -> Option<Hungry> {
        let line = self.line(class)?;
        let index = line.iter().position(|hungry| hungry.block == block)?;
        line.remove(index)
    }

    /// The classes that are waited for, as a set of [`StackClass::bit`].
    pub(crate) fn classes(&self) -> u32 {
        let waited_for = self.hungry.iter().filter(|(_, line)| !line.is_empty());
        waited_for.fold(0, |bits, (class, _)| bits | class.bit())
    }

    /// Whether nobody waits, neither for a class nor to end.
    pub(crate) fn is_empty(&self) -> bool {
        self.classes() == 0 && self.doomed.is_empty()
    }

    /// The `index`th class that ever was waited for.
    pub(crate) fn class(&self, index: usize) -> Option<StackClass> {
        self.hungry.get(index).map(|(class, _)| *class)
    }

    /// Takes all who wait for a class.
    pub(crate) fn take_hungry(&mut self) -> impl Iterator<Item = Hungry> + use<> {
        let hungry = std::mem::take(&mut self.hungry);
        hungry.into_iter().flat_map(|(_, line)| line)
    }
}
