//! Searches a tree for a word: a fiber per file. `cargo run -p sinew --example grep --
//! WORD DIR`; without arguments it searches a small tree of its own.

use sinew::fs::{self, DirEntry, File};
use sinew::sync::Semaphore;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Open files at a time.
const AT_ONCE: usize = 64;

/// What was found; what could not be looked at is told, and left out.
fn or_told<T: Default>(path: &Path, found: io::Result<T>) -> T {
    let told = |error| eprintln!("{}: {error}", path.display());
    found.map_err(told).unwrap_or_default()
}

/// All files below `folder`.
fn files_below(folder: &Path, files: &mut Vec<PathBuf>) {
    let listing = fs::read_dir(folder).and_then(|entries| entries.collect());
    for entry in or_told::<Vec<DirEntry>>(folder, listing) {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path(), files),
            Ok(kind) if kind.is_file() => files.push(entry.path()),
            _ => {} // links would lead in circles
        }
    }
}

/// The lines of a file that have `word`, as `path:number:line`.
fn matches(path: &Path, word: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for (number, line) in (1..).zip(BufReader::new(File::open(path)?).split(b'\n')) {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if line.contains(word) {
            found.push(format!("{}:{number}:{line}", path.display()));
        }
    }
    Ok(found)
}

/// The matches of all files, in the order of their paths.
fn search(word: &str, folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    files_below(folder, &mut files);
    files.sort();
    let places = &Semaphore::new(AT_ONCE);
    sinew::scope(|scope| {
        let search_one = |path: PathBuf| {
            scope.spawn(move || {
                let _place = places.acquire().expect("it is open, nobody cancels");
                or_told(&path, matches(&path, word))
            })
        };
        let fibers: Vec<_> = files.into_iter().map(search_one).collect();
        Vec::from_iter(fibers.into_iter().flat_map(|fiber| fiber.join().unwrap()))
    })
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let found = sinew::run(|| match &arguments[..] {
        [word, folder] => Ok(search(word, Path::new(folder))),
        _ => search_own_tree(),
    });
    found.map(|lines| lines.iter().for_each(|line| println!("{line}")))
}

fn search_own_tree() -> io::Result<Vec<String>> {
    let root = std::env::temp_dir().join(format!("sinew-grep-{}", std::process::id()));
    fs::create_dir_all(root.join("b"))?;
    fs::write(root.join("b/file"), "hay\nhay, needle\n")?;
    fs::write(root.join("a"), "needle\nhay\n")?;
    let found = search("needle", &root);
    fs::remove_dir_all(&root)?;
    let expected = ["a:1:needle", "b/file:2:hay, needle"].map(|line| root.join(line));
    assert!(found.iter().map(Path::new).eq(&expected), "{found:?}");
    Ok(found)
}
