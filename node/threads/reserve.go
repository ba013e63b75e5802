package threads

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/internal/logging"
)

// ErrAlreadyRunning is the error of a second call of [Reserve.Run].
var ErrAlreadyRunning = errors.New("threads: Run was called before")

// Options are the settings of a [Reserve]. The zero value is valid.
type Options struct {
	// Threads is the number of threads that the process is to have. Default: [DefaultThreads] and one for each CPU that
	// Go uses.
	Threads int
	// Logger receives limits that are too small. Default: that of package slog.
	Logger logr.Logger

	proc, cgroup string // /proc and /sys/fs/cgroup, in tests others
	make         func(n int)
	period       time.Duration // readPeriod
}

// DefaultThreads is the number of threads that an agent needs beside those that execute Go code, with some in hand: on
// containerd, the start of 50 pods at once takes 13 threads in all, and their end 24.
const DefaultThreads = 32

// spare is the part of the room that a reserve leaves: for the thread that makes threads in Go's runtime, and for what
// starts meanwhile.
const spare = 3

// Reserve is a number of idle threads. It is safe for concurrent use.
type Reserve struct {
	opts Options
	fill sync.Once
	made int
	// limits are those that were found by Fill.
	limits []limit

	mu  sync.Mutex
	ran bool
}

// limit is a limit that this process has.
type limit struct {
	// name is its file, or the name of the resource.
	name string
	max  int64
	used int64
	// events is the file that counts, as "max", what failed because of it; "" if there is none.
	events string
	// silent means that the kernel may not signal it, as Linux 6.18 with version 1 of cgroups.
	silent bool
}

// New returns a reserve without threads. It reads nothing.
func New(opts Options) (*Reserve, error) {
	opts.Logger = logging.OrDefault(opts.Logger)
	if opts.Threads < 0 {
		return nil, fmt.Errorf("threads: Options.Threads is %d, and must not be below 0", opts.Threads)
	}
	if opts.Threads == 0 {
		opts.Threads = DefaultThreads + goruntime.GOMAXPROCS(0)
	}
	if opts.make == nil {
		opts.make = makeThreads
	}
	return &Reserve{opts: opts}, nil
}

// Name implements lifecycle.Component.
func (*Reserve) Name() string { return "limit of threads" }

// Fill makes the threads if the process has a limit, and returns how many there are; 0 without a limit. It is best
// called early, while there is room. Later calls do nothing.
func (r *Reserve) Fill() int {
	r.fill.Do(func() {
		r.limits = findLimits(r.opts.proc, r.opts.cgroup)
		if r.made = size(r.limits, r.opts.Threads); r.made > 0 {
			r.opts.make(r.made)
		}
		if l, ok := tightest(r.limits); ok && r.made < r.opts.Threads {
			r.opts.Logger.Info("A limit of processes leaves the agent fewer threads than it needs under load; it "+
				"ends if it needs one more. "+advice,
				"limit", l.name, "max", l.max, "used", l.used, "threads", r.made, "wanted", r.opts.Threads)
		}
	})
	return r.made
}

// advice is what to do.
const advice = "Raise the limit, as with TasksMax=infinity in the unit of systemd"

// tightest returns the limit with the smallest room. ok is false if there are no limits.
func tightest(limits []limit) (least limit, ok bool) {
	for _, l := range limits {
		if !ok || l.room() < least.room() {
			least, ok = l, true
		}
	}
	return least, ok
}

func (l limit) room() int64 { return max(0, l.max-l.used) }

// size returns the number of threads to make.
func size(limits []limit, want int) int {
	l, ok := tightest(limits)
	if !ok {
		return 0
	}
	return int(min(int64(want), max(0, l.room()-spare)))
}

// makeThreads has n goroutines on threads of their own at once. Then the threads are idle.
func makeThreads(n int) {
	var locked, ended sync.WaitGroup
	release := make(chan struct{})
	locked.Add(n)
	for range n {
		ended.Go(func() {
			goruntime.LockOSThread()
			defer goruntime.UnlockOSThread()
			locked.Done()
			<-release
		})
	}
	locked.Wait()
	close(release)
	ended.Wait()
}

// Run calls [Reserve.Fill], and logs once when a limit of a cgroup is reached. It blocks until ctx ends. The error is
// [ErrAlreadyRunning].
func (r *Reserve) Run(ctx context.Context) error {
	r.mu.Lock()
	ran := r.ran
	r.ran = true
	r.mu.Unlock()
	if ran {
		return ErrAlreadyRunning
	}
	r.Fill()
	if len(r.limits) == 0 {
		<-ctx.Done()
		return nil
	}
	l, err := awaitLimit(ctx, r.limits, r.opts.period)
	switch {
	case ctx.Err() != nil:
		return nil
	case err != nil:
		r.opts.Logger.Info("It will not be logged if the limit of processes of the agent is reached",
			"error", err.Error())
	default:
		r.opts.Logger.Error(fmt.Errorf("%s: %d processes and threads", l.name, l.max),
			"The limit of processes of the agent is reached: no process and no thread can start, and the agent ends "+
				"if it needs one more thread. It is logged once. "+advice)
	}
	<-ctx.Done()
	return nil
}
