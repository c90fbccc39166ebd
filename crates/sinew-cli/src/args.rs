//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;

use lexopt::prelude::*;

use crate::bench::rival::Rival;
use crate::bench::{self, workload};
use crate::tour;

/// What `sinew help` prints.
pub const HELP: &str = "\
sinew: a tour of the fiber runtime, and its benchmarks

usage: sinew [tour] [--fibers N] [--workers N]
       sinew bench [options]
       sinew help

tour      a few seconds of what fibers can do, with a table at the end
  --fibers N         fibers alive at once (default a million, fewer if memory is short)
  --workers N        OS threads that run them (default: the usable CPUs)

bench     every workload against its rivals, each in a process of its own
  --only A,B         workloads whose name contains A or B
  --rivals A,B       of tokio, go, may, crossbeam, parking_lot, raw, threads (default all)
  --workers 1,2      numbers of workers to try (default 1,2)
  --rounds N         rounds to take the median of (default 5)
  --quick            tiny sizes and one round, to see that everything runs
  --csv FILE         write medians and samples
  --svg FILE         write a bar chart
  --rivals-dir DIR   where the sources of the rivals are
  --no-build         use rivals that were built before
  --check            exit with status 1 if a bar is missed
  --list             list the workloads
";

/// What to do.
#[derive(Debug, PartialEq)]
pub enum Command {
    Tour(tour::Options),
    Bench(bench::Options),
    /// One measurement, as a child of `bench`: runtime, then its job.
    Work(Vec<String>),
    /// Load on a server, as a child of `bench` or by hand.
    Load(Vec<String>),
    Help,
    Version,
}

/// Reads the arguments that follow the program's name.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    let unread: Option<fn(Vec<String>) -> Command> = match args.first() {
        Some(word) if word == "__work" => Some(Command::Work),
        Some(word) if word == "__load" => Some(Command::Load),
        _ => None,
    };
    if let Some(command) = unread {
        let words = args.into_iter().skip(1).map(|word| word.string());
        return words.collect::<Result<_, _>>().map(command);
    }
    let mut parser = lexopt::Parser::from_args(args);
    match parser.next()? {
        None => Ok(Command::Tour(tour::Options::default())),
        Some(Value(word)) => match word.string()?.as_str() {
            "tour" => parse_tour(&mut parser, None),
            "bench" => parse_bench(&mut parser),
            "help" => Ok(Command::Help),
            other => Err(format!("unknown command `{other}`").into()),
        },
        Some(Short('h') | Long("help")) => Ok(Command::Help),
        Some(Short('V') | Long("version")) => Ok(Command::Version),
        // `sinew --fibers 1000` is `sinew tour --fibers 1000`.
        Some(Long(option)) => {
            let option = option.to_owned();
            parse_tour(&mut parser, Some(option))
        }
        Some(other) => Err(other.unexpected()),
    }
}

fn parse_tour(
    parser: &mut lexopt::Parser,
    mut first: Option<String>,
) -> Result<Command, lexopt::Error> {
    let mut options = tour::Options::default();
    loop {
        let option = match first.take() {
            Some(option) => option,
            None => match parser.next()? {
                None => return Ok(Command::Tour(options)),
                Some(Long(option)) => option.to_owned(),
                Some(Short('h')) => return Ok(Command::Help),
                Some(other) => return Err(other.unexpected()),
            },
        };
        match option.as_str() {
            "fibers" => options.fibers = Some(positive(parser)?),
            "workers" => options.workers = Some(positive(parser)?),
            "help" => return Ok(Command::Help),
            _ => return Err(Long(&option).unexpected()),
        }
    }
}

fn parse_bench(parser: &mut lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut options = bench::Options::default();
    let mut rounds = None;
    while let Some(arg) = parser.next()? {
        match arg {
            Long("only") => options.only = list(parser)?,
            Long("rivals") => {
                options.rivals = list(parser)?
                    .iter()
                    .map(|name| Rival::parse(name))
                    .collect::<Result<_, String>>()?;
            }
            Long("workers") => {
                options.workers = list(parser)?
                    .iter()
                    .map(|word| match word.parse() {
                        Ok(n @ 1..=64) => Ok(n),
                        _ => Err(format!("--workers: `{word}` is not a number from 1 to 64")),
                    })
                    .collect::<Result<_, String>>()?;
                options.workers.sort_unstable();
                options.workers.dedup();
            }
            Long("rounds") => rounds = Some(positive(parser)?),
            Long("quick") => options.quick = true,
            Long("csv") => options.csv = Some(PathBuf::from(parser.value()?)),
            Long("svg") => options.svg = Some(PathBuf::from(parser.value()?)),
            Long("rivals-dir") => options.rivals_dir = PathBuf::from(parser.value()?),
            Long("no-build") => options.build = false,
            Long("check") => options.check = true,
            Long("list") => options.list = true,
            Short('h') | Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected()),
        }
    }
    if let Some(stray) = options
        .only
        .iter()
        .find(|part| !workload::all().any(|w| w.name.contains(part.as_str())))
    {
        return Err(format!("--only: no workload's name contains `{stray}`").into());
    }
    options.rounds = rounds.unwrap_or(if options.quick { 1 } else { options.rounds });
    Ok(Command::Bench(options))
}

fn positive(parser: &mut lexopt::Parser) -> Result<usize, lexopt::Error> {
    let word = parser.value()?.string()?;
    match word.replace('_', "").parse() {
        Ok(n) if n > 0 => Ok(n),
        _ => Err(format!("`{word}` is not a number above 0").into()),
    }
}

/// Words between commas; at least one.
fn list(parser: &mut lexopt::Parser) -> Result<Vec<String>, lexopt::Error> {
    let words: Vec<String> = parser
        .value()?
        .string()?
        .split(',')
        .map(str::trim)
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    if words.is_empty() {
        return Err("an empty list".into());
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|e| e.to_string())
    }

    fn bench_options(line: &str) -> bench::Options {
        match parse_words(line) {
            Ok(Command::Bench(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn without_a_command_it_is_the_tour() {
        assert_eq!(parse_words(""), Ok(Command::Tour(tour::Options::default())));
        assert_eq!(
            parse_words("--fibers 1_000"),
            parse_words("tour --fibers=1000")
        );
    }

    #[test]
    fn bench_has_five_rounds_and_a_quick_one_has_one() {
        assert_eq!(bench_options("bench").rounds, 5);
        assert_eq!(bench_options("bench --quick").rounds, 1);
        assert_eq!(bench_options("bench --rounds 3 --quick").rounds, 3);
    }

    #[test]
    fn bench_reads_its_lists() {
        let options = bench_options("bench --only yield,skynet --rivals go,may --workers 2,1,2");
        assert_eq!(options.only, ["yield", "skynet"]);
        assert_eq!(options.rivals, [Rival::Go, Rival::May]);
        assert_eq!(options.workers, [1, 2]);
    }

    #[test]
    fn bench_reads_its_files_and_switches() {
        let options = bench_options("bench --csv a.csv --svg=b.svg --check --no-build --list");
        assert_eq!(options.csv, Some(PathBuf::from("a.csv")));
        assert_eq!(options.svg, Some(PathBuf::from("b.svg")));
        assert!(options.check && !options.build && options.list);
    }

    #[test]
    fn a_wrong_word_is_named_in_the_error() {
        for (line, word) in [
            ("brunch", "brunch"),
            ("bench --fast", "--fast"),
            ("bench --only nonsense", "nonsense"),
            ("bench --rivals java", "java"),
            ("bench --workers 0", "`0`"),
            ("bench --rounds 0", "`0`"),
            ("bench extra", "extra"),
            ("tour --fibers many", "many"),
        ] {
            let error = parse_words(line).expect_err(line);
            assert!(error.contains(word), "{line}: {error}");
        }
    }

    #[test]
    fn help_is_found_everywhere() {
        for line in ["help", "--help", "-h", "tour --help", "bench -h"] {
            assert_eq!(parse_words(line), Ok(Command::Help), "{line}");
        }
        assert_eq!(parse_words("--version"), Ok(Command::Version));
    }

    #[test]
    fn a_child_takes_its_words_unread() {
        assert_eq!(
            parse_words("__work sinew yield_10 --workers 2"),
            Ok(Command::Work(
                ["sinew", "yield_10", "--workers", "2"]
                    .map(str::to_owned)
                    .into()
            ))
        );
        assert_eq!(
            parse_words("__load echo --addr 127.0.0.1:1"),
            Ok(Command::Load(
                ["echo", "--addr", "127.0.0.1:1"].map(str::to_owned).into()
            ))
        );
    }
}
