use std::time::*;
fn main() {
    for w in [1, 2] {
        let rt = sinew::Runtime::builder().workers(w).build().unwrap();
        rt.run(|| {
            assert_eq!(sinew::spawn(|| 42).join().unwrap(), 42);
            sinew::sleep(Duration::from_millis(3)).unwrap();
            let n = 2_000_000u32;
            let t = Instant::now();
            for _ in 0..n { sinew::yield_now(); }
            println!("w={w} yield alone {:?}", t.elapsed() / n);
            let t = Instant::now();
            let hs: Vec<_> = (0..10).map(|_| sinew::spawn(move || for _ in 0..n/10 { sinew::yield_now(); })).collect();
            for h in hs { h.join().unwrap(); }
            println!("w={w} yield 10 {:?}", t.elapsed() / n);
            let n = 300_000u32;
            for _ in 0..1000 { sinew::spawn(|| ()).join().unwrap(); }
            let t = Instant::now();
            for _ in 0..n { sinew::spawn(|| ()).join().unwrap(); }
            println!("w={w} spawn+join {:?}", t.elapsed() / n);
            let n = 1_000_000u32;
            for _ in 0..2 {
            let t = Instant::now();
            let hs: Vec<_> = (0..n).map(|i| sinew::spawn(move || i)).collect();
            let s: u64 = hs.into_iter().map(|h| h.join().unwrap() as u64).sum();
            println!("w={w} spawn 1M {:?} {s}", t.elapsed() / n);
            }
            let h = sinew::spawn(|| -> () { panic!("x") });
            println!("{}", h.join().unwrap_err());
            let mut v = vec![1];
            sinew::blocking(|| v.push(2));
            assert_eq!(v, [1,2]);
            for _ in 0..3 {
            let t = Instant::now();
            let s = skynet(0, 1_000_000);
            println!("w={w} skynet {:?} {s}", t.elapsed());
            }
        });
        println!("{:?}", rt.stats());
    }
}
fn skynet(num: u64, size: u64) -> u64 {
    if size == 1 { return num; }
    let hs: Vec<_> = (0..10).map(|i| { let n = num + i * (size/10); sinew::spawn(move || skynet(n, size/10)) }).collect();
    hs.into_iter().map(|h| h.join().unwrap()).sum()
}
