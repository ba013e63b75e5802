package logs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/fswatch"
	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

func TestNew(t *testing.T) {
	_, err := New(nil, Options{MaxFiles: 1, MaxSize: -1, MaxWorkers: -1, Interval: -1})
	for _, what := range []string{"LogReopener", "Dir", "MaxFiles", "MaxSize", "MaxWorkers", "Interval"} {
		assert.ErrorContains(t, err, what)
	}
}

func TestRotates(t *testing.T) {
	run(t, func(r *rig) {
		c := r.start("a")
		for range 12 {
			c.write(6 << 10)
			time.Sleep(2 * time.Second)
		}
		names, sizes := c.files()
		require.Len(t, names, 4)
		assert.True(t, strings.HasSuffix(names[0], ".gz"), names)
		assert.True(t, strings.HasSuffix(names[1], ".gz"), names)
		assert.Regexp(t, `^0\.log\.\d{8}-\d{6}$`, names[2], "a reader may not have finished it")
		assert.Equal(t, "0.log", names[3])
		assert.Len(t, sizes, 4, "nothing is left over")
		assert.Positive(t, c.check())
		assert.Empty(t, r.logged())
		assert.Equal(t, [4]int{6, 0, 5, 0}, r.measured())
		require.Len(t, r.node.Records(), 6)
		for _, rec := range r.node.Records() {
			assert.Equal(t, runtime.Record{Pod: runtime.RefOf(c.pod), Stage: runtime.StageDone,
				Kind: runtime.KindRotateLog, Container: "main"}, rec, "equal, so that the history counts them")
		}
		info, err := os.Stat(filepath.Join(filepath.Dir(c.path), names[0]))
		require.NoError(t, err)
		assert.EqualValues(t, 0o640, info.Mode().Perm())
	})
}

// A log exceeds its limit by what is written in about 2 ms, at any rate.
func TestLimit(t *testing.T) {
	for _, tc := range []struct {
		rate, limit, percent int64
		step                 time.Duration
	}{
		{6 << 20, 10 << 20, 1, time.Millisecond},
		{100 << 20, 10 << 20, 10, time.Millisecond},
		{1000, 100 << 10, 1, time.Second},
	} {
		run(t, func(r *rig) {
			r.opts.MaxSize, r.opts.MaxFiles = tc.limit, 2
			r.restart()
			c := r.start("a")
			each := int(tc.rate * int64(tc.step) / int64(time.Second))
			most := int64(0)
			for range int(3*tc.limit) / each {
				c.write(each)
				time.Sleep(tc.step)
				_, sizes := c.files()
				most = max(most, sizes["0.log"])
			}
			assert.LessOrEqual(t, most, tc.limit+tc.limit*tc.percent/100, "%d bytes a second", tc.rate)
			assert.GreaterOrEqual(t, most, tc.limit-int64(each))
		})
	}
}

func TestQuietLogsCostNothing(t *testing.T) {
	run(t, func(r *rig) {
		for i := range 100 {
			r.start(string(rune('a'+i/26)) + string(rune('a'+i%26)))
		}
		c := r.start("writer")
		c.write(100)
		time.Sleep(time.Minute)
		r.mu.Lock()
		adds := r.adds
		r.mu.Unlock()
		assert.LessOrEqual(t, adds, 110)
		r.m.mu.Lock()
		defer r.m.mu.Unlock()
		assert.Len(t, r.m.logs, 101)
		for _, l := range r.m.logs {
			assert.False(t, l.active)
		}
	})
}

func TestRotationFails(t *testing.T) {
	for name, tc := range map[string]struct {
		reopen, opened func(*container) error
		message        string
	}{
		"no answer":             {reopen: func(*container) error { return errReopen }, message: "does not answer"},
		"the answer was lost":   {opened: func(*container) error { return errReopen }},
		"only the file is made": {reopen: func(c *container) error { require.NoError(t, os.WriteFile(c.path, nil, 0o640)); return errReopen }},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				c := r.start("a")
				c.write(5 << 10)
				time.Sleep(time.Minute)
				r.mu.Lock()
				r.reopen, r.opened = tc.reopen, tc.opened
				r.mu.Unlock()
				c.write(6 << 10)
				time.Sleep(500 * time.Millisecond)
				if tc.message != "" {
					require.Len(t, r.logged(), 1)
					assert.Contains(t, r.logged()[0], tc.message)
					names, _ := c.files()
					assert.Equal(t, []string{"0.log"}, names)
				}
				c.write(1 << 10)
				time.Sleep(time.Hour)
				r.mu.Lock()
				r.reopen, r.opened = nil, nil
				r.mu.Unlock()
				c.write(6 << 10)
				time.Sleep(time.Minute)
				if tc.message == "" {
					return // what a runtime writes to a file without its name is not lost, but not in order
				}
				names, _ := c.files()
				assert.Len(t, names, 2)
				assert.Zero(t, c.check())
				assert.Len(t, r.logged(), 1)
				assert.Equal(t, []int{1, 1}, []int{r.measured()[0], r.measured()[1]},
					"attempts that repeat a failure are not reported")
				require.Len(t, r.node.Records(), 2)
				assert.Contains(t, r.node.Records()[0].Error, tc.message)
				assert.Empty(t, r.node.Records()[1].Error)
			})
		})
	}
}

// A container ends before the runtime opens a new log, which is no failure. The log has its name, and all lines.
func TestContainerEndsDuringRotation(t *testing.T) {
	run(t, func(r *rig) {
		c := r.start("a")
		r.mu.Lock()
		r.reopen = func(*container) error {
			return fmt.Errorf("opening a new log: it has ended: %w",
				runtime.ErrNotFound)
		}
		r.mu.Unlock()
		c.write(11 << 10)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Empty(t, r.node.Records())
		assert.Zero(t, r.measured()[1])
		names, _ := c.files()
		assert.Equal(t, []string{"0.log"}, names)
		assert.Zero(t, c.check())
		for _, message := range r.logged() {
			assert.Contains(t, message, "its container has ended")
		}

		r.mu.Lock()
		r.reopen = func(*container) error { return errReopen } // it runs after all
		r.mu.Unlock()
		c.write(1 << 10)
		time.Sleep(time.Hour)
		synctest.Wait()
		assert.Len(t, r.node.Records(), 1)
	})
}

// The agent is killed at each step of a rotation.
func TestInterruptions(t *testing.T) {
	for name, kill := range map[string]func(c *container){
		"before the runtime opens a new log": func(c *container) {
			require.NoError(t, os.Rename(c.path, c.path+".20260102-030405"))
		},
		"while a file is compressed": func(c *container) {
			require.NoError(t, os.Rename(c.path, c.path+".20260102-030405"))
			require.NoError(t, c.open())
			c.write(11 << 10)
			require.NoError(t, os.Rename(c.path, c.path+".20260102-030406"))
			require.NoError(t, os.WriteFile(c.path+".20260102-030405.tmp", []byte("\x1f\x8b cut off"), 0o600))
			require.NoError(t, c.open())
		},
		"before a compressed file is removed": func(c *container) {
			require.NoError(t, os.Rename(c.path, c.path+".20260102-030405"))
			require.NoError(t, c.open())
			c.write(11 << 10)
			time.Sleep(time.Minute)
			names, _ := c.files()
			require.Equal(t, "0.log.20260102-030405.gz", names[0])
			require.NoError(t, os.WriteFile(c.path+".20260102-030405", []byte(c.read(names[0])), 0o600))
		},
		"after the name was given back": func(c *container) {
			require.NoError(t, os.Link(c.path, c.path+".20260102-030405"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				c := r.start("a")
				c.write(5 << 10)
				time.Sleep(time.Minute)
				if !strings.HasPrefix(name, "before a") {
					r.stop()
				}
				kill(c)
				r.restart()
				time.Sleep(time.Minute)
				c.write(11 << 10)
				time.Sleep(time.Minute)
				assert.Zero(t, c.check())
				names, sizes := c.files()
				assert.Len(t, sizes, len(names), "nothing is left over: %v", sizes)
				assert.Empty(t, r.logged())
			})
		})
	}
}

// A file that cannot be compressed stops no rotation, and is removed in its turn.
func TestFilesThatCannotBeCompressed(t *testing.T) {
	run(t, func(r *rig) {
		c := r.start("a")
		for i := range 10 {
			c.write(11 << 10)
			time.Sleep(500 * time.Millisecond)
			if i == 0 {
				names, _ := c.files()
				blocked := filepath.Join(filepath.Dir(c.path), names[0]+crilog.Temporary)
				require.NoError(t, os.MkdirAll(filepath.Join(blocked, "full"), 0o700))
			}
			time.Sleep(2 * time.Second)
		}
		names, _ := c.files()
		assert.Len(t, names, 4)
		assert.Positive(t, c.check())
		assert.NotEmpty(t, r.logged())
		assert.Contains(t, r.logged()[0], "cannot be compressed")
		assert.Positive(t, r.measured()[3])
	})
}

func TestEndOfAContainer(t *testing.T) {
	run(t, func(r *rig) {
		a, b := r.start("a"), r.start("b")
		a.write(100)
		b.write(100)
		require.NoError(t, r.m.Ended(t.Context(), lifecycle.EndedRequest{Pod: a.pod}))
		require.NoError(t, r.m.Gone(t.Context(), lifecycle.GoneRequest{Pod: runtime.RefOf(b.pod)}))
		for _, c := range []*container{a, b} {
			c.write(20 << 10)
		}
		time.Sleep(time.Hour)
		for _, c := range []*container{a, b} {
			names, _ := c.files()
			assert.Equal(t, []string{"0.log"}, names)
		}
		assert.Empty(t, r.m.logs)
		assert.Empty(t, r.m.byPod)
	})
}

// If the kernel has lost events, all logs may have grown.
func TestLostEvents(t *testing.T) {
	run(t, func(r *rig) {
		c := r.start("a")
		time.Sleep(time.Minute)
		r.mu.Lock()
		delete(r.watched, c.path)
		r.mu.Unlock()
		c.write(11 << 10)
		r.written <- fswatch.Changes{Lost: errors.New("queue overflow")}
		time.Sleep(time.Minute)
		names, _ := c.files()
		assert.Len(t, names, 2)
	})
}

// Without watches of the kernel logs are rotated, too, and that is logged once for all of them.
func TestWithoutAWatcher(t *testing.T) {
	for message, set := range map[string]func(r *rig){
		"max_user_instances": func(r *rig) { r.opts.watch = func() (watcher, error) { return nil, fswatch.Refused(syscall.EMFILE) } },
		"max_user_watches":   func(r *rig) { r.unwatched = fswatch.Refused(syscall.ENOSPC) },
	} {
		t.Run(message, func(t *testing.T) {
			run(t, func(r *rig) {
				set(r)
				r.restart()
				all := []*container{r.start("a"), r.start("b"), r.start("c")}
				time.Sleep(time.Minute)
				for _, c := range all {
					c.write(11 << 10)
				}
				time.Sleep(11 * time.Second)
				for _, c := range all {
					names, _ := c.files()
					assert.Len(t, names, 2)
				}
				require.Len(t, r.logged(), 1)
				assert.Contains(t, r.logged()[0], message)
			})
		})
	}
}

// Random writes, rotations that fail, and restarts lose no line, double none, and leave no more files than allowed.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			defer func() { r.stop() }()
			r.restart()
			all := []*container{r.start("a"), r.start("b")}
			for range rapid.IntRange(1, 40).Draw(rt, "steps") {
				c := all[rapid.IntRange(0, 1).Draw(rt, "container")]
				switch rapid.IntRange(0, 5).Draw(rt, "step") {
				case 0:
					r.restart()
				case 1:
					r.mu.Lock()
					r.reopen = func(*container) error { return errReopen }
					r.mu.Unlock()
				case 2:
					r.mu.Lock()
					r.reopen = nil
					r.mu.Unlock()
				default:
					c.write(rapid.IntRange(1, 15<<10).Draw(rt, "bytes"))
				}
				time.Sleep(time.Duration(rapid.IntRange(0, 5000).Draw(rt, "ms")) * time.Millisecond)
			}
			r.mu.Lock()
			r.reopen = nil
			r.mu.Unlock()
			for _, c := range all {
				c.write(1)
			}
			time.Sleep(10 * time.Minute)
			for _, c := range all {
				c.check()
				names, sizes := c.files()
				assert.LessOrEqual(t, len(names), 4)
				assert.Len(t, sizes, len(names))
				assert.Less(t, sizes["0.log"], r.opts.MaxSize)
			}
		})
	})
}

// A runtime that rotates its logs has them compressed, and nothing else is renamed. A log that it does not limit is
// rotated all the same.
func TestRuntimeRotates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.opts.RuntimeRotates = true
		r.restart()
		c := r.start("web")
		for i := range 3 {
			c.write(int(r.opts.MaxSize) - 1000)
			time.Sleep(2 * time.Second)
			require.NoError(t, os.Rename(c.path, fmt.Sprintf("%s.20000101-00000%d", c.path, i+1)))
			r.mu.Lock()
			err := c.open()
			r.mu.Unlock()
			require.NoError(t, err)
			c.write(100)
			time.Sleep(2 * time.Second)
			synctest.Wait()
		}
		assert.Equal(t, 3, r.measured()[0])
		for _, name := range []string{"", ".20000101-000001.gz", ".20000101-000002.gz", ".20000101-000003"} {
			assert.FileExists(t, c.path+name)
		}
		c.write(int(r.opts.MaxSize))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		assert.Equal(t, 4, r.measured()[0])
		size, err := os.Stat(c.path)
		require.NoError(t, err)
		assert.Zero(t, size.Size())
		assert.Zero(t, r.measured()[1])
	})
}
