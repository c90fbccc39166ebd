use std::time::*;
fn main() {
    let w: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let rt = sinew::Runtime::builder().workers(w).report_hogs_after(Duration::from_secs(100)).build().unwrap();
    let only = std::env::args().nth(2).unwrap_or_default();
    let best = |name: &str, rounds: usize, n: u32, f: &(dyn Fn(u32) + Sync)| {
        if !only.is_empty() && !name.contains(&only) { return; }
        let mut all: Vec<f64> = (0..rounds).map(|_| rt.run(|| { let t = Instant::now(); f(n); t.elapsed().as_nanos() as f64 / n as f64 })).collect();
        all.sort_by(f64::total_cmp);
        println!("w={w} {name:10} min {:.1} median {:.1}", all[0], all[rounds / 2]);
    };
    best("yield1", 20, 500_000, &|n| for _ in 0..n { sinew::yield_now() });
    best("yield10", 20, 1_000_000, &|n| {
        let hs: Vec<_> = (0..10).map(|_| sinew::spawn(move || for _ in 0..n/10 { sinew::yield_now(); })).collect();
        for h in hs { h.join().unwrap(); } });
    best("yield1k", 20, 1_000_000, &|n| {
        let hs: Vec<_> = (0..1000).map(|_| sinew::spawn(move || for _ in 0..n/1000 { sinew::yield_now(); })).collect();
        for h in hs { h.join().unwrap(); } });
    best("sj", 20, 200_000, &|n| for _ in 0..n { sinew::spawn(|| ()).join().unwrap(); });
    best("spawn1m", 5, 1_000_000, &|n| {
        let hs: Vec<_> = (0..n).map(|i| sinew::spawn(move || i)).collect();
        let s: u64 = hs.into_iter().map(|h| h.join().unwrap() as u64).sum(); assert!(s > 0); });
    best("skynet", 5, 1_000_000, &|n| { skynet(0, n as u64); });
}
fn skynet(num: u64, size: u64) -> u64 {
    if size == 1 { return num; }
    let hs: Vec<_> = (0..10).map(|i| { let n = num + i * (size/10); sinew::spawn(move || skynet(n, size/10)) }).collect();
    hs.into_iter().map(|h| h.join().unwrap()).sum()
}
