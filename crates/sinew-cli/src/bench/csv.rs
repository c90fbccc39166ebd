//! `--csv`: one line per rival and figure, with the median and all samples.

use super::report::{Cell, Row};
use super::stats::Summary;

/// All rows; the samples are in the last field, with spaces between them.
pub fn render(rows: &[Row]) -> String {
    let mut text = String::from(
        "workload,workers,figure,unit,rival,set_up,median,min,max,sinew_over_rival,samples\n",
    );
    for row in rows {
        for (rival, cell) in &row.cells {
            let (set_up, numbers, samples) = match cell {
                Cell::Absent => continue,
                Cell::Died => (
                    "",
                    ["dies".into(), String::new(), String::new()],
                    String::new(),
                ),
                Cell::Value(variant, summary) => {
                    let Summary {
                        median,
                        min,
                        max,
                        samples,
                    } = summary;
                    let samples: Vec<String> = samples.iter().map(f64::to_string).collect();
                    (
                        *variant,
                        [median, min, max].map(f64::to_string),
                        samples.join(" "),
                    )
                }
            };
            let ratio = row
                .ratio(*rival)
                .map_or(String::new(), |r| format!("{r:.4}"));
            let fields = [
                &row.title(),
                &row.workers.to_string(),
                row.figure.key,
                &format!("{:?}", row.figure.unit),
                rival.name(),
                set_up,
                &numbers[0],
                &numbers[1],
                &numbers[2],
                &ratio,
                &samples,
            ]
            .map(quote);
            text.push_str(&fields.join(","));
            text.push('\n');
        }
    }
    text
}

/// Quotes a field where a reader would stumble over it (RFC 4180).
fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::rows_of;
    use super::super::rival::Rival;
    use super::*;

    #[test]
    fn a_line_has_the_median_and_every_sample() {
        let rows = rows_of(
            "skynet_cold",
            2,
            &[
                (Rival::Sinew, "sinew", "ms", &[300.5, 310.0, 290.0]),
                (Rival::Go, "go", "ms", &[600.0, 602.0]),
                (Rival::May, "may", "ms", &[]),
            ],
        );
        let text = render(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1..],
            [
                "skynet_cold,2,ms,Milliseconds,sinew,sinew,300.5,290,310,1.0000,300.5 310 290",
                "skynet_cold,2,ms,Milliseconds,go,go,601,600,602,0.5000,600 602",
                "skynet_cold,2,ms,Milliseconds,may,,dies,,,,",
            ]
        );
    }

    #[test]
    fn every_line_has_as_many_fields_as_the_header() {
        let rows = rows_of(
            "idle",
            2,
            &[(Rival::Sinew, "sinew", "cpu_ms_per_s", &[0.5])],
        );
        let text = render(&rows);
        let counts: Vec<usize> = text.lines().map(|l| l.split(',').count()).collect();
        assert_eq!(counts, [11, 11]);
    }

    #[test]
    fn commas_and_quotes_are_quoted() {
        assert_eq!(quote("a,b"), "\"a,b\"");
        assert_eq!(quote("say \"a\""), "\"say \"\"a\"\"\"");
        assert_eq!(quote("plain"), "plain");
    }
}
