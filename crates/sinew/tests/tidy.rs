//! Keeps the tree as ARCHITECTURE and CONTRIBUTING describe it.
//!
//! Reads sources as text: comments and literals are blanked first, so that a
//! word in a comment is no code. Test code (`tests`, `loom_tests`, `#[cfg(test)]`
//! modules) may import what it likes; everything else points downward.

#[path = "tidy/source.rs"]
mod source;

use source::{code_of, imports, line_of, without_test_modules, words};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The layers: each may import only those before it in this list.
const LAYERS: &[&str] = &[
    // L0: no knowledge of fibers.
    "error",
    "primitive",
    "util",
    // L1: the OS seam. L2: memory to run on. L3: what a fiber is.
    "sys",
    "stack",
    "fiber",
    // L4: pure structures.
    "queue",
    "timer",
    // L5: leaving a CPU and coming back. L6: waiting. L7: I/O events.
    "sched",
    "wait",
    "reactor",
    // L8: threads that run it all. L9: putting it together.
    "worker",
    "runtime",
    // L10: what users call.
    "time",
    "task",
    "sync",
    "cancel",
    "local",
    "hooks",
    "channel",
    "select",
    "scope",
    "io",
    "net",
    "fs",
    "process",
    "signal",
    "tls",
    "interop",
    "sim",
    "par",
    "generator",
    "effect",
    "region",
    "observe",
    // Not layers: documents, and what `sinew bench` measures.
    "guide",
    "bench_internals",
];

/// The only file that may declare thread-locals.
const THREAD_LOCALS: &str = "sched/current.rs";

/// Files that may ask whether this is a model: the shim, the crate's root, and
/// the OS seam, where a model's futex takes the kernel's place.
const LOOM_SHIMS: &[&str] = &["primitive.rs", "lib.rs", "sys/mod.rs"];

/// What a test module may ask, so that models and other tests do not mix.
const LOOM_GATES: &[&str] = &[
    "#[cfg(all(test, loom))]",
    "#[cfg(all(test, not(loom)))]",
    "#![cfg(loom)]",
];

/// Tests that `#[sinew::test]` keeps the attribute.
const TESTS_OF_IGNORE: &str = "sinew-macros/tests/attributes.rs";

/// Aim at 150 to 500 lines; beyond this a file needs a reason here.
const MANY_LINES: usize = 600;
const LONG_FILES: &[(&str, &str)] = &[
    (
        "sinew-macros/src/safepoints.rs",
        "one rewriting pass; a third of it are the tests of its cases",
    ),
    (
        "sinew/src/fiber/state.rs",
        "one word, and every transition of it",
    ),
    (
        "sinew/src/fiber/loom_tests.rs",
        "the models of one word and its table of weakened orderings",
    ),
];

/// How far above an `unsafe` block its reason may stand.
const SAFETY_WITHIN: usize = 10;

struct Source {
    /// Relative to `crates/sinew/src`, or to `crates` for [`everything`].
    name: String,
    text: String,
    /// The text with comments and literals blanked, line by line the same.
    code: String,
}

impl Source {
    fn read(path: &Path, root: &Path) -> Source {
        let text = fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let name = path
            .strip_prefix(root)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let code = code_of(&text);
        Source { name, text, code }
    }

    fn is_test(&self) -> bool {
        let parts = self.name.trim_end_matches(".rs").split('/');
        parts
            .into_iter()
            .any(|part| part == "tests" || part == "loom_tests")
    }

    /// The code outside of modules for tests and models.
    fn shipped(&self) -> String {
        if self.is_test() {
            String::new()
        } else {
            without_test_modules(&self.code)
        }
    }

    fn layer(&self) -> &str {
        let first = self.name.split('/').next().unwrap();
        first.trim_end_matches(".rs")
    }
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            into.push(path);
        }
    }
}

fn sources(folder: &Path, root: &Path) -> Vec<Source> {
    let mut paths = Vec::new();
    files(folder, &mut paths);
    paths.sort();
    paths.iter().map(|path| Source::read(path, root)).collect()
}

/// The library.
fn library() -> Vec<Source> {
    let root = crates().join("sinew/src");
    let all = sources(&root, &root);
    assert!(
        all.len() > 50,
        "found only {} files in {}",
        all.len(),
        root.display()
    );
    all
}

/// All our code: library, macros, program, neighbours, rivals, tests and examples.
fn everything() -> Vec<Source> {
    let root = crates();
    let mut all = Vec::new();
    for member in [
        "sinew",
        "sinew-macros",
        "sinew-cli",
        "sinew-neighbours",
        "sinew-rivals",
    ] {
        for folder in ["src", "tests", "examples"] {
            all.extend(sources(&root.join(member).join(folder), &root));
        }
    }
    all
}

fn place_of(layer: &str) -> Option<usize> {
    // The one folder whose module has another name: what macros expand to is public.
    let layer = if layer == "__select" { "select" } else { layer };
    LAYERS.iter().position(|known| *known == layer)
}

/// Fails with all complaints at once.
fn report(rule: &str, complaints: &[String]) {
    assert!(
        complaints.is_empty(),
        "{rule}:\n  {}\n",
        complaints.join("\n  ")
    );
}

#[test]
fn imports_point_downward() {
    let mut complaints = Vec::new();
    for source in library().iter().filter(|source| source.name != "lib.rs") {
        let Some(place) = place_of(source.layer()) else {
            complaints.push(format!("{}: in no layer; add it to LAYERS", source.name));
            continue;
        };
        let code = source.shipped();
        for (at, module) in imports(&code) {
            let line = line_of(&code, at);
            let name = &source.name;
            match place_of(&module) {
                Some(target) if target <= place => {}
                Some(_) => complaints.push(format!(
                    "{name}:{line}: {} imports {module}, which is above it",
                    source.layer()
                )),
                None => complaints.push(format!(
                    "{name}:{line}: crate::{module} is no layer; name the module that defines it"
                )),
            }
        }
        // Ways around the rule: through the crate's own name, and upward.
        let depth = source.name.matches('/').count();
        let too_far = format!("super{}", "::super".repeat(depth));
        for at in code
            .match_indices(&too_far)
            .map(|(at, _)| at)
            .filter(|_| depth > 0)
            // Not a module whose name begins so.
            .filter(|at| code[at + too_far.len()..].starts_with("::"))
        {
            let line = line_of(&code, at);
            complaints.push(format!(
                "{}:{line}: leaves its folder by `{too_far}`",
                source.name
            ));
        }
        for at in words(&code, "sinew").filter(|&at| code[at..].starts_with("sinew::")) {
            let line = line_of(&code, at);
            complaints.push(format!("{}:{line}: imports through `sinew::`", source.name));
        }
    }
    report(
        "a layer imports only from those before it in LAYERS",
        &complaints,
    );
}

#[test]
fn thread_locals_are_declared_in_one_file() {
    let mut complaints = Vec::new();
    for source in library()
        .iter()
        .filter(|source| source.name != THREAD_LOCALS)
    {
        let code = source.shipped();
        for at in words(&code, "thread_local") {
            complaints.push(format!("{}:{}", source.name, line_of(&code, at)));
        }
    }
    report("only sched/current.rs declares thread-locals", &complaints);
}

#[test]
fn only_the_shim_knows_of_loom() {
    let mut complaints = Vec::new();
    for source in library()
        .iter()
        .filter(|s| !LOOM_SHIMS.contains(&s.name.as_str()))
    {
        if source.name.ends_with("loom_tests.rs") {
            continue;
        }
        for (number, line) in source.code.lines().enumerate() {
            let gate = LOOM_GATES.contains(&line.trim());
            if words(line, "loom").next().is_some() && !gate {
                complaints.push(format!("{}:{}: {}", source.name, number + 1, line.trim()));
            }
        }
    }
    report(
        "cfg(loom) belongs into primitive.rs, or gates a test module",
        &complaints,
    );
}

#[test]
fn nothing_is_left_undone_or_ignored() {
    let mut complaints = Vec::new();
    for source in everything() {
        for mark in ["todo!", "unimplemented!", "#[ignore", "dbg!"] {
            let in_ci = source.text.contains("; a step of CI runs it\"]");
            if mark == "#[ignore" && (source.name == TESTS_OF_IGNORE || in_ci) {
                continue;
            }
            for (at, _) in source.code.match_indices(mark) {
                let line = line_of(&source.code, at);
                complaints.push(format!("{}:{line}: {mark}", source.name));
            }
        }
    }
    report("finish it, or leave it out", &complaints);
}

#[test]
fn every_unsafe_block_and_impl_gives_its_reason() {
    let mut complaints = Vec::new();
    for source in everything() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (number, code) in source.code.lines().enumerate() {
            let block = words(code, "unsafe").any(|at| {
                let rest = code[at + "unsafe".len()..].trim_start();
                // Rustfmt may leave the brace to the next line; then it is last.
                rest.starts_with('{') || rest.starts_with("impl") || rest.is_empty()
            });
            let from = number.saturating_sub(SAFETY_WITHIN);
            if block
                && !lines[from..=number]
                    .iter()
                    .any(|line| line.contains("SAFETY"))
            {
                complaints.push(format!("{}:{}: {}", source.name, number + 1, code.trim()));
            }
        }
    }
    report(
        "a SAFETY comment stands right above each unsafe block and impl",
        &complaints,
    );
}

#[test]
fn every_file_begins_with_its_header() {
    let headless = |source: &Source| {
        let text = source.text.trim_start();
        !(text.starts_with("//!") || text.starts_with("#![doc = include_str!("))
    };
    let complaints: Vec<String> = everything()
        .into_iter()
        .filter(headless)
        .map(|source| source.name)
        .collect();
    report("a file says at its top what it is", &complaints);
}

#[test]
fn long_files_are_long_for_a_reason() {
    let mut complaints = Vec::new();
    let mut listed: BTreeSet<&str> = LONG_FILES.iter().map(|(name, _)| *name).collect();
    for source in everything()
        .iter()
        .filter(|source| source.name.contains("/src/"))
    {
        let lines = source.text.lines().count();
        let excused = listed.remove(source.name.as_str());
        if lines > MANY_LINES && !excused {
            complaints.push(format!(
                "{} has {lines} lines; split it at its second concept",
                source.name
            ));
        }
        if lines <= MANY_LINES && excused {
            complaints.push(format!(
                "{} is short now; take it off LONG_FILES",
                source.name
            ));
        }
    }
    complaints.extend(
        listed
            .iter()
            .map(|name| format!("{name} is on LONG_FILES but not there")),
    );
    report("one concept a file", &complaints);
}

#[test]
fn examples_are_short() {
    let root = crates().join("sinew/examples");
    let long = |source: &Source| source.text.lines().count() > 80;
    let complaints: Vec<String> = sources(&root, &root)
        .into_iter()
        .filter(long)
        .map(|source| source.name)
        .collect();
    report("an example has at most 80 lines", &complaints);
}

#[test]
fn the_index_of_invariants_names_every_file_that_has_some() {
    let path = crates().parent().unwrap().join("ARCHITECTURE.md");
    let index = fs::read_to_string(path).unwrap();
    let mut complaints = Vec::new();
    for source in library() {
        let has_some = source
            .text
            .lines()
            .any(|line| line.starts_with("//! Invariant"));
        if has_some && !index.contains(&format!("| `{}` |", source.name)) {
            complaints.push(source.name);
        }
    }
    report(
        "missing in ARCHITECTURE.md, Index of invariants",
        &complaints,
    );
}

#[test]
fn the_guide_shows_the_service_as_it_is() {
    let root = crates().parent().unwrap().to_owned();
    let guide = fs::read_to_string(root.join("docs/guide.md")).unwrap();
    let example = fs::read_to_string(root.join("crates/sinew/examples/service.rs")).unwrap();
    let block = format!("```rust,standalone_crate\n{example}```\n");
    assert!(
        guide.contains(&block),
        "copy examples/service.rs into docs/guide.md, A whole service"
    );
}

#[test]
fn links_between_documents_lead_somewhere() {
    let root = crates().parent().unwrap().to_owned();
    let mut complaints = Vec::new();
    for document in [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "docs/guide.md",
        "docs/soundness.md",
        "docs/bench.md",
    ] {
        let path = root.join(document);
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{document}: {e}"));
        for link in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            if link.starts_with("http") {
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                path.clone()
            } else {
                path.with_file_name("").join(file)
            };
            let there = fs::read_to_string(&target);
            let fits = match (&there, anchor) {
                (Err(_), _) => target.is_dir() && anchor.is_empty(),
                (Ok(_), "") => true,
                (Ok(text), anchor) => text
                    .lines()
                    .any(|line| slug(line).as_deref() == Some(anchor)),
            };
            if !fits {
                complaints.push(format!("{document}: {link}"));
            }
        }
    }
    report("links that lead nowhere", &complaints);
}

/// The anchor that a repository's page gives to a heading.
fn slug(line: &str) -> Option<String> {
    let title = line
        .starts_with('#')
        .then(|| line.trim_start_matches('#').trim())?;
    let kept = title
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(
        kept.map(|c| {
            if c == ' ' {
                '-'
            } else {
                c.to_ascii_lowercase()
            }
        })
        .collect(),
    )
}

#[test]
fn a_heading_has_the_anchor_that_the_repository_gives_it() {
    let anchor = slug("## Porting from std::thread");
    assert_eq!(anchor.as_deref(), Some("porting-from-stdthread"));
    assert_eq!(slug("no heading"), None);
}
