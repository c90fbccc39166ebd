use std::time::*;
fn main() {
    let rt = sinew::Runtime::builder().workers(2).build().unwrap();
    for k in [10usize, 20, 1000] { for _ in 0..4 {
        let s0 = rt.stats();
        let n = 2_000_000;
        let el = rt.run(|| { let t = Instant::now();
        let hs: Vec<_> = (0..k).map(|_| sinew::spawn(move || for _ in 0..n/k { sinew::yield_now(); })).collect();
        for h in hs { h.join().unwrap(); } t.elapsed() });
        let s1 = rt.stats();
        println!("k={k} {:?} w0 {} w1 {} stolen {}", el / n as u32, s1.workers[0].switches - s0.workers[0].switches, s1.workers[1].switches - s0.workers[1].switches, s1.stolen - s0.stolen);
    } }
}
