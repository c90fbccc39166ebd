use std::time::*;
use std::sync::atomic::*;
use std::sync::Arc;
fn main() {
    let rt = sinew::Runtime::builder().workers(2).stack_size(64<<10).build().unwrap();
    let n = 1_000_000u64;
    let up = Arc::new(AtomicU64::new(0));
    let t = Instant::now();
    let hs: Vec<_> = rt.run(|| (0..n).map(|i| { let up = up.clone(); sinew::spawn(move || { up.fetch_add(1, Ordering::Relaxed); sinew::park(); let due = Instant::now() + Duration::from_micros(i * 7919 % 1_500_000); sinew::sleep(due - Instant::now()).unwrap(); due.elapsed() }) }).collect());
    while up.load(Ordering::Relaxed) < n { std::thread::sleep(Duration::from_millis(1)); }
    println!("up {:?} {:?}", t.elapsed(), rt.stats().workers);
    let t = Instant::now();
    for h in &hs { h.fiber().unpark(); }
    println!("unparked {:?}", t.elapsed());
    let late = rt.run(|| hs.into_iter().map(|h| h.join().unwrap()).max());
    println!("done {:?} late {:?} {:?}", t.elapsed(), late, rt.stats().workers);
}
