//! Names, ids and `current`.

use crate::harness::{in_fibers, on_workers, watch};
use sinew::Builder;
use std::collections::HashSet;

#[test]
fn a_name_is_seen_by_the_fiber_and_by_its_handle_also_after_the_end() {
    in_fibers(|| {
        let handle = Builder::new()
            .name("a name with ünicode")
            .spawn(|| sinew::current().name().map(String::from))
            .unwrap();
        let fiber = handle.fiber();
        assert_eq!(fiber.name(), Some("a name with ünicode"));
        assert_eq!(
            handle.join().unwrap().as_deref(),
            Some("a name with ünicode")
        );
        assert_eq!(fiber.name(), Some("a name with ünicode"));
        assert!(fiber.is_finished());
    });
}

#[test]
fn a_fiber_without_a_name_has_none_even_in_a_used_block() {
    in_fibers(|| {
        for _ in 0..100 {
            let named = Builder::new().name("named").spawn(|| ()).unwrap();
            named.join().unwrap();
            let plain = sinew::spawn(|| sinew::current().name().map(String::from));
            assert_eq!(plain.join().unwrap(), None);
        }
    });
}

#[test]
fn a_thread_s_stand_in_has_the_thread_s_name_and_one_id() {
    let _watch = watch();
    let thread = std::thread::Builder::new().name("plain".into()).spawn(|| {
        let (first, second) = (sinew::current(), sinew::current());
        assert_eq!(first.id(), second.id());
        assert_eq!(first.name(), Some("plain"));
        assert!(!first.is_finished());
        first
    });
    let stand_in = thread.unwrap().join().unwrap();
    assert!(stand_in.is_finished());
    assert_ne!(stand_in.id(), sinew::current().id());
}

#[test]
fn ids_are_never_used_twice() {
    on_workers(|runtime| {
        let mut seen = HashSet::new();
        runtime.run(|| {
            assert!(seen.insert(sinew::current().id()));
            for _ in 0..20_000 {
                let child = sinew::spawn(|| sinew::current().id());
                let fiber = child.fiber();
                let id = child.join().unwrap();
                assert_eq!(fiber.id(), id);
                assert!(seen.insert(id), "{id} was used before");
            }
            let many: Vec<_> = (0..2000)
                .map(|_| sinew::spawn(|| sinew::current().id()))
                .collect();
            for child in many {
                assert!(seen.insert(child.join().unwrap()));
            }
        });
        for _ in 0..100 {
            let id = runtime.spawn_id();
            assert!(seen.insert(id));
            let thread = std::thread::spawn(|| sinew::current().id());
            assert!(seen.insert(thread.join().unwrap()));
        }
    });
}

#[test]
fn an_id_is_shown_by_its_slot_and_is_short() {
    on_workers(|runtime| {
        let mut shown = HashSet::new();
        runtime.run(|| {
            for _ in 0..1000 {
                let id = sinew::spawn(|| sinew::current().id()).join().unwrap();
                let text = id.to_string();
                let numbers: Vec<Result<u64, _>> = text.split('.').map(str::parse).collect();
                assert!(matches!(numbers[..], [Ok(_)] | [Ok(_), Ok(2..)]), "{text}");
                assert_eq!(format!("{id:?}"), format!("FiberId({text})"));
                assert!(shown.insert(text));
            }
        });
    });
    let thread = sinew::current().id().to_string();
    assert!(thread.starts_with('t') && thread[1..].parse::<u64>().is_ok());
}

#[test]
fn a_missing_id_costs_no_room() {
    assert_eq!(size_of::<Option<sinew::FiberId>>(), size_of::<u64>());
}

#[test]
fn a_name_with_a_nul_byte_panics_as_std_s_and_spawns_nothing() {
    fn message(f: impl FnOnce()) -> String {
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
        match caught.unwrap_err().downcast::<&str>() {
            Ok(text) => text.to_string(),
            Err(_) => panic!("no text"),
        }
    }
    const TEXT: &str = "fiber name may not contain interior null bytes";
    let named = || Builder::new().name("a\0b");
    on_workers(|runtime| {
        assert_eq!(
            message(|| drop(named().spawn_on(&runtime.handle(), || ()))),
            TEXT
        );
        runtime.run(|| {
            assert_eq!(message(|| drop(named().spawn(|| ()))), TEXT);
            assert_eq!(message(|| drop(named().spawn_local(|| ()))), TEXT);
            // A scope counts its children: this one would wait for ever.
            sinew::scope(|scope| {
                assert_eq!(message(|| drop(named().spawn_scoped(scope, || ()))), TEXT);
            });
            let supervised = sinew::scope::supervise(Default::default(), |supervisor| {
                let add = || supervisor.child("c\0d", sinew::scope::Restart::Temporary, || ());
                assert_eq!(message(add), TEXT);
            });
            drop(supervised);
        });
    });
}

trait SpawnId {
    fn spawn_id(&self) -> sinew::FiberId;
}

impl SpawnId for sinew::Runtime {
    fn spawn_id(&self) -> sinew::FiberId {
        self.spawn(|| sinew::current().id()).join().unwrap()
    }
}

#[test]
fn the_debug_text_of_a_fiber_tells_its_id_and_name() {
    in_fibers(|| {
        let handle = Builder::new().name("shown").spawn(|| ()).unwrap();
        let id = handle.fiber().id();
        let text = format!("{:?} {handle:?}", handle.fiber());
        assert_eq!(text.matches("shown").count(), 2, "{text}");
        assert!(text.contains(&id.to_string()), "{text}");
        handle.join().unwrap();
    });
}

#[test]
fn public_types_are_as_sendable_and_unwind_safe_as_those_of_std() {
    fn everywhere<T: Send + Sync + std::panic::UnwindSafe + std::panic::RefUnwindSafe>() {}
    everywhere::<sinew::Fiber>();
    everywhere::<sinew::JoinHandle<u32>>();
    everywhere::<sinew::Runtime>();
    everywhere::<sinew::Handle>();
    fn boxes<T: std::error::Error + Send + Sync + 'static>() {}
    boxes::<sinew::JoinError>();
    boxes::<sinew::ShutdownError>();
    boxes::<sinew::Cancelled>();
}
