//! Who is measured, and how its programs are built and started.
//!
//! Sinew and plain threads with std's locks run in this very program. tokio,
//! may, raw corosensei, raw loops around epoll and io_uring, and threads with
//! crossbeam's channels or parking_lot's locks are in the crate `sinew-rivals`, goroutines in its folder `go`; both
//! are built here, on demand, and the run goes on without what can't be built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, io};

use super::Options;
use super::child::Job;
use super::workload::Kind;

/// A column of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rival {
    Sinew,
    Tokio,
    Go,
    May,
    /// corosensei without a runtime, or a bare loop around epoll or io_uring:
    /// the limit.
    Raw,
    /// OS threads, with what std has.
    Threads,
    /// OS threads, with crossbeam's channels.
    Crossbeam,
    /// OS threads, with parking_lot's locks.
    ParkingLot,
}

/// One way to run a rival; what its program calls it.
pub type Variant = &'static str;

impl Rival {
    /// Everybody but Sinew.
    pub const ALL: [Rival; 7] = [
        Rival::Tokio,
        Rival::Go,
        Rival::May,
        Rival::Raw,
        Rival::Threads,
        Rival::Crossbeam,
        Rival::ParkingLot,
    ];

    /// Those in the crate `sinew-rivals`.
    const IN_CRATE: [Rival; 5] = [
        Rival::Tokio,
        Rival::May,
        Rival::Raw,
        Rival::Crossbeam,
        Rival::ParkingLot,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Rival::Sinew => "sinew",
            Rival::Tokio => "tokio",
            Rival::Go => "go",
            Rival::May => "may",
            Rival::Raw => "raw",
            Rival::Threads => "threads",
            Rival::Crossbeam => "crossbeam",
            Rival::ParkingLot => "parking_lot",
        }
    }

    pub fn parse(name: &str) -> Result<Rival, String> {
        Rival::ALL
            .into_iter()
            .find(|rival| rival.name() == name)
            .ok_or_else(|| {
                let names = Rival::ALL.map(Rival::name).join(", ");
                format!("--rivals: `{name}` is none of {names}")
            })
    }

    /// The set-ups worth trying. The better one of a rival counts; each of
    /// Sinew's, its I/O drivers, is held against that.
    pub fn variants(self, kind: Kind, workers: usize) -> &'static [Variant] {
        match self {
            Rival::Tokio if workers == 1 => &["tokio-ct", "tokio-mt"],
            Rival::Tokio => &["tokio-mt"],
            Rival::Sinew if kind != Kind::Plain => &["sinew-epoll", "sinew-uring"],
            Rival::Sinew => &["sinew"],
            Rival::Raw if kind != Kind::Plain => &["raw-epoll", "raw-uring"],
            Rival::Go => &["go"],
            Rival::May => &["may"],
            Rival::Raw => &["raw"],
            Rival::Threads => &["threads"],
            Rival::Crossbeam => &["crossbeam"],
            Rival::ParkingLot => &["parking_lot"],
        }
    }
}

/// The I/O driver that this set-up of Sinew is told to take.
pub fn driver(variant: Variant) -> Option<&'static str> {
    variant.strip_prefix("sinew-")
}

/// The programs of the rivals, as far as there are any.
pub struct Programs {
    sinew: PathBuf,
    rivals: Option<PathBuf>,
    go: Option<PathBuf>,
}

impl Programs {
    /// Builds what `options` ask for. A rival that can't be built is left out,
    /// with a message.
    pub fn prepare(options: &Options) -> io::Result<Programs> {
        let target = match env::var_os("CARGO_TARGET_DIR") {
            Some(dir) => Path::new(&dir).join("rivals"),
            None => options.rivals_dir.join("target"),
        };
        let target = std::path::absolute(target)?;
        let wants = |some: &[Rival]| some.iter().any(|rival| options.rivals.contains(rival));
        let rivals = target.join("release/rivals");
        let go = target.join("rivals-go");
        Ok(Programs {
            sinew: env::current_exe()?,
            rivals: wants(&Rival::IN_CRATE)
                .then(|| {
                    built(
                        "tokio, may, raw and crates for threads",
                        &rivals,
                        options,
                        || build_rivals(options, &target),
                    )
                })
                .flatten(),
            go: wants(&[Rival::Go])
                .then(|| built("go", &go, options, || build_go(options, &go)))
                .flatten(),
        })
    }

    /// The programs in a test: none but this one.
    #[cfg(test)]
    pub fn none() -> Programs {
        Programs {
            sinew: PathBuf::from("sinew"),
            rivals: None,
            go: None,
        }
    }

    pub fn has(&self, rival: Rival) -> bool {
        match rival {
            Rival::Sinew | Rival::Threads => true,
            Rival::Go => self.go.is_some(),
            Rival::Tokio | Rival::May | Rival::Raw | Rival::Crossbeam | Rival::ParkingLot => {
                self.rivals.is_some()
            }
        }
    }

    /// The command that runs `job` on `variant`, a variant of `rival`: its
    /// program, or the load that starts it where it is a server.
    pub fn command(
        &self,
        rival: Rival,
        variant: Variant,
        kind: Kind,
        job: &Job,
    ) -> Option<Command> {
        let order = [
            &job.name,
            "--workers",
            &job.workers.to_string(),
            "--scale",
            &job.scale.to_string(),
        ];
        let (program, first): (&Path, &[&str]) = match rival {
            Rival::Sinew => (&self.sinew, &["__work", "sinew"]),
            Rival::Threads => (&self.sinew, &["__work", variant]),
            Rival::Go => (self.go.as_ref()?, &[]),
            Rival::Tokio | Rival::May | Rival::Raw | Rival::Crossbeam | Rival::ParkingLot => {
                (self.rivals.as_ref()?, &[variant])
            }
        };
        let mut command = if kind == Kind::Served {
            let mut command = Command::new(&self.sinew);
            command.args(["__load", "run"]).args(order).arg("--");
            command.arg(program);
            command
        } else {
            Command::new(program)
        };
        command
            .args(first)
            .args(order)
            // Settings of the shell must not change what is measured.
            .env_remove("SINEW_WORKERS")
            .env_remove("SINEW_STACK_KB")
            .env_remove("SINEW_IO")
            .env_remove("TOKIO_WORKER_THREADS")
            .env_remove("GOMAXPROCS")
            .env("RUST_BACKTRACE", "0");
        if let Some(driver) = driver(variant) {
            command.env("SINEW_IO", driver);
        }
        Some(command)
    }
}

/// `program` after `build`, or None with a message.
fn built(
    whose: &str,
    program: &Path,
    options: &Options,
    build: impl FnOnce() -> Result<(), String>,
) -> Option<PathBuf> {
    let problem = if options.build {
        build().err()
    } else if program.is_file() {
        None
    } else {
        Some(format!("{} is not there", program.display()))
    };
    match problem {
        None => Some(program.to_owned()),
        Some(problem) => {
            eprintln!("going on without {whose}: {problem}");
            None
        }
    }
}

fn build_rivals(options: &Options, target: &Path) -> Result<(), String> {
    let manifest = options.rivals_dir.join("Cargo.toml");
    if !manifest.is_file() {
        return Err(format!(
            "{} is not there (--rivals-dir)",
            manifest.display()
        ));
    }
    eprintln!(
        "building tokio, may, raw corosensei and crates for threads in {}",
        target.display()
    );
    let cargo = env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    run(Command::new(cargo)
        .args([
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--manifest-path",
        ])
        .arg(manifest)
        .arg("--target-dir")
        .arg(target))
}

fn build_go(options: &Options, program: &Path) -> Result<(), String> {
    let sources = options.rivals_dir.join("go");
    if !sources.join("go.mod").is_file() {
        return Err(format!("{} is not there (--rivals-dir)", sources.display()));
    }
    let go = env::var_os("GO").unwrap_or_else(|| OsString::from("go"));
    eprintln!("building goroutines in {}", program.display());
    run(Command::new(go)
        .current_dir(sources)
        .env("GOTOOLCHAIN", "local")
        .args(["build", "-o"])
        .arg(program)
        .arg("."))
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.stdin(Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(problem) => Err(format!("can't run {name}: {problem}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rival_is_found_by_its_name() {
        for rival in Rival::ALL {
            assert_eq!(Rival::parse(rival.name()), Ok(rival));
        }
        assert!(Rival::parse("sinew").is_err()); // always there, not a rival
    }

    #[test]
    fn tokio_has_two_set_ups_for_one_worker() {
        let of = |workers| Rival::Tokio.variants(Kind::Plain, workers);
        assert_eq!(of(1), ["tokio-ct", "tokio-mt"]);
        assert_eq!(of(2), ["tokio-mt"]);
    }

    #[test]
    fn sinew_runs_once_with_each_driver_where_there_is_io() {
        for kind in [Kind::Io, Kind::Served] {
            let drivers = Rival::Sinew.variants(kind, 1).iter().map(|v| driver(v));
            assert_eq!(drivers.collect::<Vec<_>>(), [Some("epoll"), Some("uring")]);
        }
        assert_eq!(driver(Rival::Sinew.variants(Kind::Plain, 1)[0]), None);
    }

    #[test]
    fn a_missing_folder_is_no_failure() {
        let options = Options {
            rivals_dir: PathBuf::from("/nowhere"),
            ..Options::default()
        };
        let programs = Programs::prepare(&options).unwrap();
        assert!(programs.has(Rival::Sinew) && programs.has(Rival::Threads));
        assert!(!programs.has(Rival::Tokio) && !programs.has(Rival::Go));
    }

    #[test]
    fn a_child_gets_its_job_as_words() {
        let job = Job {
            name: "yield_10".to_owned(),
            workers: 2,
            scale: 0.25,
        };
        let command = Programs::none()
            .command(Rival::Sinew, "sinew", Kind::Plain, &job)
            .unwrap();
        let words: Vec<_> = command.get_args().collect();
        assert_eq!(
            words,
            [
                "__work",
                "sinew",
                "yield_10",
                "--workers",
                "2",
                "--scale",
                "0.25"
            ]
        );
        assert!(
            Programs::none()
                .command(Rival::Go, "go", Kind::Plain, &job)
                .is_none()
        );
    }

    #[test]
    fn a_server_is_started_by_its_load() {
        let job = Job {
            name: "short".to_owned(),
            workers: 1,
            scale: 1.0,
        };
        let command = Programs::none()
            .command(Rival::Sinew, "sinew-uring", Kind::Served, &job)
            .unwrap();
        let words: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        assert_eq!(
            words.join(" "),
            "__load run short --workers 1 --scale 1 -- \
             sinew __work sinew short --workers 1 --scale 1"
        );
        let driver = command.get_envs().find(|(key, _)| *key == "SINEW_IO");
        assert_eq!(driver.unwrap().1.unwrap(), "uring");
    }
}
