package flow_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubeletkit/kubeletkit/internal/flow"
)

// disk is what a Saver saves to. It notes the saves and the lines of the log, with their times.
type disk struct {
	mu    sync.Mutex
	began time.Time
	fails error
	log   []string
	takes time.Duration
}

func (d *disk) set(takes time.Duration, fails error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.takes, d.fails = takes, fails
}

func (d *disk) save() error {
	d.mu.Lock()
	takes, err := d.takes, d.fails
	d.mu.Unlock()
	time.Sleep(takes)
	d.note("save: %v", err)
	return err
}

func (d *disk) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log = append(d.log, fmt.Sprintf("%v ", time.Since(d.began))+fmt.Sprintf(format, args...))
}

// took returns the log since the last call.
func (d *disk) took() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	log := d.log
	d.log, d.began = nil, time.Now()
	return log
}

func (d *disk) saver(wait time.Duration) flow.Saver {
	return flow.Saver{
		Dirty: flow.NewSignal(), Wait: wait,
		Save:  d.save,
		Retry: flow.Backoff{Min: time.Second, Max: 5 * time.Second}.After,
		Log: funcr.New(func(_, args string) {
			_, message, _ := strings.Cut(args, `"msg"=`)
			d.note("%s", strings.ReplaceAll(message, `"`, ""))
		}, funcr.Options{}),
		Failing: "failing", Saved: "saved", Unsaved: "unsaved",
	}
}

// saving runs a test with a Saver that runs. stop ends it.
func saving(t *testing.T, wait time.Duration, test func(t *testing.T, d *disk, s flow.Saver, stop func())) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		s := d.saver(wait)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); s.Run(ctx) }()
		stop := func() { cancel(); <-ended }
		defer stop()
		d.took()
		test(t, d, s, stop)
	})
}

func TestChangesAreCollected(t *testing.T) {
	saving(t, time.Second, func(t *testing.T, d *disk, s flow.Saver, _ func()) {
		for range 3 {
			s.Dirty.Notify()
			time.Sleep(time.Second / 4)
		}
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"1s save: <nil>"}, d.took())
		d.set(time.Minute, nil)
		s.Dirty.Notify()
		time.Sleep(2 * time.Second)
		s.Dirty.Notify() // during the save
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"1m1s save: <nil>", "2m2s save: <nil>"}, d.took())
	})
}

// Failures in a row are logged once, and so is their end. A change is saved at once.
func TestSavesThatFail(t *testing.T) {
	saving(t, 0, func(t *testing.T, d *disk, s flow.Saver, _ func()) {
		for range 2 {
			d.set(0, errors.New("full"))
			s.Dirty.Notify()
			time.Sleep(4 * time.Second)
			s.Dirty.Notify()
			synctest.Wait()
			d.set(0, nil)
			time.Sleep(time.Hour)
			assert.Equal(t, []string{"0s save: full", "0s failing error=full", "1s save: full", "3s save: full",
				"4s save: full", "8s save: <nil>", "8s saved"}, d.took())
		}
		d.set(0, errors.New("full"))
		s.Dirty.Notify()
		synctest.Wait()
		d.set(0, nil)
		s.Dirty.Notify()
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"0s save: full", "0s failing error=full", "0s save: <nil>", "0s saved"},
			d.took(), "nothing is left to try again")
	})
}

// Each change is tried at once, and the delay does not grow with their number.
func TestManyChangesThatFail(t *testing.T) {
	saving(t, 0, func(t *testing.T, d *disk, s flow.Saver, _ func()) {
		d.set(0, errors.New("full"))
		for range 6 {
			s.Dirty.Notify()
			synctest.Wait()
		}
		d.set(0, nil)
		time.Sleep(time.Hour)
		log := d.took()
		require.Len(t, log, 6+1+2, "%s", log)
		assert.Equal(t, []string{"1s save: <nil>", "1s saved"}, log[7:])
	})
}

// A change after a failure is collected, too.
func TestWaitAfterAFailure(t *testing.T) {
	saving(t, time.Second, func(t *testing.T, d *disk, s flow.Saver, _ func()) {
		d.set(0, errors.New("full"))
		s.Dirty.Notify()
		time.Sleep(2*time.Second + time.Second/2)
		s.Dirty.Notify()
		time.Sleep(time.Second / 4)
		s.Dirty.Notify()
		d.set(0, nil)
		time.Sleep(time.Hour)
		assert.Equal(t, []string{"1s save: full", "1s failing error=full", "2s save: full", "3.5s save: <nil>",
			"3.5s saved"}, d.took())
	})
}

func TestLastSave(t *testing.T) {
	full := errors.New("full")
	for name, c := range map[string]struct {
		fails, last error
		dirty       bool
		after       time.Duration // the end, after the change
		want        []string
	}{
		"unchanged":       {want: nil},
		"saved":           {dirty: true, after: time.Minute, want: []string{"1s save: <nil>"}},
		"at once":         {dirty: true, want: []string{"0s save: <nil>"}},
		"while it waits":  {dirty: true, after: time.Second / 2, want: []string{"500ms save: <nil>"}},
		"at once, failed": {dirty: true, last: full, want: []string{"0s save: full", "0s unsaved error=full"}},
		"while it fails": {dirty: true, fails: full, last: full, after: 3 * time.Second / 2, want: []string{
			"1s save: full", "1s failing error=full", "1.5s save: full", "1.5s unsaved error=full"}},
		"it has failed": {dirty: true, fails: full, after: 3 * time.Second / 2, want: []string{
			"1s save: full", "1s failing error=full", "1.5s save: <nil>", "1.5s saved"}},
	} {
		t.Run(name, func(t *testing.T) {
			saving(t, time.Second, func(t *testing.T, d *disk, s flow.Saver, stop func()) {
				d.set(0, c.fails)
				if c.dirty {
					s.Dirty.Notify()
				}
				if c.after > 0 {
					time.Sleep(c.after)
					synctest.Wait()
				}
				d.set(0, c.last)
				stop()
				assert.Equal(t, c.want, d.took())
			})
		})
	}
}

func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		s := d.saver(0)
		d.took()
		s.Flush(t.Context())
		s.Dirty.Notify()
		s.Flush(t.Context())
		s.Flush(t.Context())
		assert.Equal(t, []string{"0s save: <nil>"}, d.took())
		d.set(0, errors.New("full"))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		s.Dirty.Notify()
		s.Flush(ctx)
		assert.Equal(t, []string{"0s save: full", "0s failing error=full", "1s save: full", "2s save: full",
			"2s unsaved error=full"}, d.took())
	})
}
