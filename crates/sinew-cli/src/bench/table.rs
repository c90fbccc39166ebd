//! The table on the terminal: Markdown, aligned, to be pasted as it is.

use super::report::{Cell, Outcome, Row, Verdict};
use super::rival::Rival;
use super::workload::digits;

/// All rows, with a column for each rival that has anything to say.
pub fn render(rows: &[Row]) -> String {
    let rivals: Vec<Rival> = Rival::ALL
        .into_iter()
        .filter(|&rival| rows.iter().any(|row| *row.cell(rival) != Cell::Absent))
        .collect();
    let mut lines = vec![
        ["work", "workers", "figure", "sinew"]
            .into_iter()
            .chain(rivals.iter().map(|rival| rival.name()))
            .chain(["bar", ""])
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    ];
    for row in rows {
        let mut line = vec![
            row.title(),
            row.workers.to_string(),
            row.figure.title.to_owned(),
            show(row, Rival::Sinew),
        ];
        line.extend(rivals.iter().map(|&rival| show(row, rival)));
        line.push(join(row.verdicts.iter().map(|verdict| verdict.bar.clone())));
        line.push(join(row.verdicts.iter().map(judge)));
        lines.push(line);
    }
    align(&lines)
}

fn show(row: &Row, rival: Rival) -> String {
    match row.cell(rival) {
        Cell::Absent => String::new(),
        Cell::Died => "dies".to_owned(),
        Cell::Value(_, summary) => {
            let value = row.figure.unit.show(summary.median);
            match row.ratio(rival) {
                Some(ratio) if rival != Rival::Sinew => format!("{value} ({}×)", digits(ratio)),
                _ => value,
            }
        }
    }
}

fn judge(verdict: &Verdict) -> String {
    let word = match verdict.outcome {
        Outcome::Ok => "ok",
        Outcome::Missed => "MISSED",
        Outcome::Unknown => "?",
    };
    match verdict.got {
        Some(got) => format!("{word} {}×", digits(got)),
        None => word.to_owned(),
    }
}

fn join(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join("; ")
}

/// Pads every column to its widest cell; the first line becomes the header.
fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            lines
                .iter()
                .map(|line| width(&line[column]))
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        for (cell, &wide) in line.iter().zip(&widths) {
            let padding = " ".repeat(wide - width(cell));
            text.push_str(&format!("| {cell}{padding} "));
        }
        text.push_str("|\n");
        if number == 0 {
            for &wide in &widths {
                text.push_str(&format!("|{}", "-".repeat(wide + 2)));
            }
            text.push_str("|\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::rows_of;
    use super::*;

    #[test]
    fn a_table_has_values_ratios_bars_and_verdicts() {
        let rows = rows_of(
            "yield_10",
            2,
            &[
                (Rival::Sinew, "sinew", "ns", &[11.0]),
                (Rival::Tokio, "tokio-mt", "ns", &[220.0]),
                (Rival::May, "may", "ns", &[]),
            ],
        );
        let expected = "\
| work     | workers | figure                 | sinew   | tokio          | may  | bar                      |             |
|----------|---------|------------------------|---------|----------------|------|--------------------------|-------------|
| yield_10 | 2       | wall time / all yields | 11.0 ns | 220 ns (0.050×) | dies | ≤ 0.6× may; ≤ 0.1× tokio | ? ; ok 0.050× |
";
        let squeeze = |text: &str| -> Vec<String> {
            text.replace(['-', ' '], "")
                .lines()
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(squeeze(&render(&rows)), squeeze(expected));
    }

    #[test]
    fn all_lines_are_equally_wide() {
        let mut rows = rows_of(
            "idle",
            2,
            &[(Rival::Sinew, "sinew", "cpu_ms_per_s", &[0.5])],
        );
        rows.extend(rows_of(
            "wake_thread",
            1,
            &[
                (Rival::Sinew, "sinew", "ns", &[40_000.0]),
                (Rival::Threads, "threads", "ns", &[30_000.0]),
            ],
        ));
        let text = render(&rows);
        let widths: Vec<usize> = text.lines().map(|line| line.chars().count()).collect();
        assert!(widths.iter().all(|&width| width == widths[0]), "{text}");
        assert!(text.contains("MISSED 1.33×"), "{text}");
        assert!(!text.contains("tokio"), "{text}"); // nobody asked it
    }
}
