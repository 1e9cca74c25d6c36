// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::{add, on, MOMENTUM};
use outrigger::*;
use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// What the ranks of one group have put down, by call and rank; the groups of a job, by name.
#[derive(Default)]
struct Board {
    given: Mutex<HashMap<(String, usize, usize), Vec<u8>>>,
    more: Condvar,
    aborted: Mutex<Option<String>>,
    alive: AtomicUsize,
}

/// Ranks that put bytes on a board. Only what a channel has to have, and split.
struct OnBoard {
    board: Arc<Board>,
    name: String,
    rank: usize,
    world: usize,
    calls: AtomicUsize,
    children: AtomicUsize,
    fail_at: usize,
}

impl OnBoard {
    fn new(board: &Arc<Board>, name: String, rank: usize, world: usize, fail_at: usize) -> Self {
        board.alive.fetch_add(1, Ordering::Relaxed);
        Self {
            board: board.clone(),
            name,
            rank,
            world,
            calls: AtomicUsize::new(0),
            children: AtomicUsize::new(0),
            fail_at,
        }
    }
    fn child(&self, name: &str, rank: usize, world: usize) -> Self {
        let count = self.children.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}/{name}{count}", self.name);
        Self::new(&self.board, name, rank, world, self.fail_at)
    }
}

impl Drop for OnBoard {
    fn drop(&mut self) {
        self.board.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Channel for OnBoard {
    const SPLITS: bool = true;

    fn all_gather(&self, mine: &[u8], all: &mut [u8]) -> io::Result<()> {
        assert_eq!(all.len(), self.world * mine.len());
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        if call == self.fail_at {
            return Err(io::Error::from_raw_os_error(110));
        }
        let mut given = self.board.given.lock().unwrap();
        given.insert((self.name.clone(), call, self.rank), mine.to_vec());
        self.board.more.notify_all();
        for rank in 0..self.world {
            let key = (self.name.clone(), call, rank);
            while !given.contains_key(&key) {
                if self.board.aborted.lock().unwrap().is_some() {
                    return Err(io::ErrorKind::ConnectionAborted.into());
                }
                given = self
                    .board
                    .more
                    .wait_timeout(given, Duration::from_millis(20))
                    .unwrap()
                    .0;
            }
            all[rank * mine.len()..][..mine.len()].copy_from_slice(&given[&key]);
        }
        Ok(())
    }

    fn duplicate(&self) -> io::Result<Self> {
        Ok(self.child("again", self.rank, self.world))
    }

    fn split(&self, groups: &[i32], places: &[i32]) -> io::Result<Option<Self>> {
        let mine = groups[self.rank];
        let world = groups.iter().filter(|&&group| group == mine).count();
        let name = format!("group{mine}.");
        let place = places[self.rank] as usize;
        Ok((mine >= 0).then(|| self.child(&name, place, world)))
    }

    fn abort(&self, reason: &str) {
        *self.board.aborted.lock().unwrap() = Some(reason.into());
    }
}

fn ranks<T: Send>(
    board: &Arc<Board>,
    world: usize,
    fail_at: usize,
    run: impl Fn(Comm) -> T + Sync,
) -> Vec<T> {
    let context = Context::new().unwrap();
    thread::scope(|scope| {
        let (run, context) = (&run, &context);
        let all: Vec<_> = (0..world)
            .map(|rank| {
                // Rank 0 alone fails.
                let fail_at = if rank == 0 { fail_at } else { usize::MAX };
                let channel = OnBoard::new(board, "world".into(), rank, world, fail_at);
                scope.spawn(move || {
                    run(Comm::custom(context, rank as i32, world as i32, channel).unwrap())
                })
            })
            .collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn collectives_and_groups() {
    let board = Arc::default();
    ranks(&board, 3, usize::MAX, |comm| {
        let rank = comm.rank();
        assert_eq!(
            comm.all_gather(&[rank as u8; 2]).unwrap(),
            [0, 0, 1, 1, 2, 2]
        );
        let mut data = [10 + rank as u8; 3];
        comm.broadcast(&mut data, 1).unwrap();
        assert_eq!(data, [11; 3]);
        let parts: Vec<Vec<u8>> = (0..3)
            .map(|to| vec![(10 * rank + to) as u8; to as usize])
            .collect();
        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        let received = comm.all_to_all(&parts, &[rank as usize; 3]).unwrap();
        let wanted: Vec<Vec<u8>> = (0..3)
            .map(|from| vec![(10 * from + rank) as u8; rank as usize])
            .collect();
        assert_eq!(received, wanted);
        let mut sum = [f64::from(rank)];
        comm.duplicate().unwrap().all_reduce_sum(&mut sum).unwrap();
        assert_eq!(sum, [3.0]);
        let numbers = |group: Comm| (group.size(), group.all_gather(&[rank as u8]).unwrap());
        let group = comm.split((rank != 1).then_some(7), -rank).unwrap();
        assert_eq!(group.map(numbers), (rank != 1).then(|| (2, vec![2, 0])));
        let group = comm.split(Some(i32::from(rank == 1)), 0).unwrap();
        let wanted = if rank == 1 {
            (1, vec![1])
        } else {
            (2, vec![0, 2])
        };
        assert_eq!(group.map(numbers), Some(wanted));
    });
    assert_eq!(board.alive.load(Ordering::Relaxed), 0);
}

/// The bits of the library's own groups, and nothing of a channel is left.
#[test]
fn an_engine_trains_over_it() {
    let steps = |comm: Comm| {
        let (mut engine, w) = on(&comm, MOMENTUM, &[1.0, -2.0, 4.0]);
        for step in 1..4 {
            let grad = (step * (comm.rank() + 1)) as f32 / 3.0;
            add(&engine, w, &[grad, -grad, 2.0 * grad]);
            assert!(engine.step().unwrap().is_applied());
        }
        let values = engine.read::<f32>(w, Value::Master).unwrap();
        engine.finalize().unwrap();
        values
    };
    let comms = Comm::threads(&Context::new().unwrap(), 2).unwrap();
    let own: Vec<_> = thread::scope(|scope| {
        let all: Vec<_> = comms
            .into_iter()
            .map(|comm| scope.spawn(move || steps(comm)))
            .collect();
        all.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let board = Arc::default();
    assert_eq!(ranks(&board, 2, usize::MAX, steps), own);
    assert_eq!(board.alive.load(Ordering::Relaxed), 0);
}

/// The rank whose function fails hears of it, and its abort reaches the others.
#[test]
fn a_function_that_fails() {
    let board = Arc::default();
    let errors = ranks(&board, 2, 3, |comm| loop {
        if let Err(error) = comm.barrier() {
            comm.abort("rank 0 has no network").unwrap();
            return error;
        }
    });
    assert!(
        matches!(&errors[0], Error::Host(text) if text.contains("110")),
        "{errors:?}"
    );
    assert!(
        matches!(&errors[1], Error::Host(_) | Error::Aborted(_)),
        "{errors:?}"
    );
    assert!(board
        .aborted
        .lock()
        .unwrap()
        .as_ref()
        .unwrap()
        .contains("no network"));
}

struct Panics;

impl Channel for Panics {
    fn all_gather(&self, _: &[u8], _: &mut [u8]) -> io::Result<()> {
        panic!("no such network")
    }
    fn duplicate(&self) -> io::Result<Self> {
        Ok(Self)
    }
}

#[test]
fn what_is_refused() {
    let context = Context::new().unwrap();
    let refused = Comm::custom(&context, 5, 2, Panics).map(|_| ());
    assert!(matches!(&refused, Err(Error::Argument(_))), "{refused:?}");
    // A panic comes out of the call.
    let panicked = std::panic::catch_unwind(|| {
        let comm = Comm::custom(&Context::new().unwrap(), 0, 2, Panics)?;
        comm.barrier()
    });
    let text = panicked.unwrap_err();
    assert_eq!(text.downcast_ref::<&str>(), Some(&"no such network"));
}
