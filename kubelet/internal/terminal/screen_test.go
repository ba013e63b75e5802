package terminal

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/podtest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// terminal understands as much as a screen needs: text, up, to the left, and erase to the end.
type terminal struct {
	rows   []string
	writes int
}

func (o *terminal) Write(p []byte) (int, error) {
	o.writes++
	text := string(p)
	if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
		n, after, _ := strings.Cut(rest, "A\r\x1b[J")
		up := 0
		for _, digit := range n {
			up = up*10 + int(digit-'0')
		}
		o.rows = o.rows[:len(o.rows)-up]
		text = after
	}
	if text != "" {
		o.rows = append(o.rows, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	}
	return len(p), nil
}

func TestScreen(t *testing.T) {
	term := &terminal{}
	width, height := 10, 5
	s := &screen{out: term, size: func() (int, int) { return width, height }}
	logged := func(text string) {
		n, err := s.Write([]byte(text))
		require.NoError(t, err)
		require.Len(t, text, n)
	}
	logged("log 1\n")
	s.show("head\nrow 1\n", nil)
	logged("log 2 is long\n")
	assert.Equal(t, []string{"log 1", "log 2 is long", "head", "row 1"}, term.rows)
	before := term.writes
	s.show("head\nrow 1\n", nil)
	assert.Equal(t, before, term.writes, "nothing has changed")
	s.show("head\nrow 1 is too long\nrow 2\nrow 3\nrow 4\n", nil)
	assert.Equal(t, []string{"log 1", "log 2 is long", "head", "row 1 is t", "row 2", "… and 2 mo"}, term.rows)
	logged("no end")
	s.show("one\n", nil)
	assert.Equal(t, []string{"log 1", "log 2 is long", "no end", "one"}, term.rows)

	// A terminal that gets narrower breaks what is there into more rows.
	s.show("row 1 long\n", nil)
	width = 4
	term.rows = append(term.rows[:3], "row ", "1 lo", "ng")
	s.show("one\n", nil)
	assert.Equal(t, []string{"log 1", "log 2 is long", "no end", "one"}, term.rows)
}

func TestLinesBelowTheTable(t *testing.T) {
	term := &terminal{}
	s := &screen{out: term, size: func() (int, int) { return 20, 7 }}
	s.show("head\nrow 1\n", []string{"", "Broken:", "  a.yaml", "  b.yaml"})
	assert.Equal(t, []string{"head", "row 1", "", "Broken:", "  a.yaml"}, term.rows,
		"they take half of the rows at most")
	s.show("head\nrow 1\nrow 2\nrow 3\nrow 4\n", []string{"", "Broken"})
	assert.Equal(t, []string{"head", "row 1", "row 2", "… and 2 more; see th", "", "Broken"}, term.rows)
	s.show("head\nrow 1\n", []string{"Changed"})
	assert.Equal(t, []string{"head", "row 1", "Changed"}, term.rows)
	s.show("head\nrow 1\n", nil)
	assert.Equal(t, []string{"head", "row 1"}, term.rows)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("hung up") }

func TestAScreenThatIsGone(t *testing.T) {
	s := &screen{out: broken{}, size: func() (int, int) { return 80, 24 }}
	s.show("x\n", nil)
	_, err := s.Write([]byte("log\n"))
	require.ErrorContains(t, err, "hung up")
}

func TestAFileIsNoTerminal(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer f.Close()
	d := New(Auto, f, os.Stderr, os.Getenv)
	d.draw(nil, []*v1.Pod{podtest.Pod(v1.PodPending)})
	assert.Same(t, os.Stderr, d.logs.out)
	said, err := os.ReadFile(f.Name())
	require.NoError(t, err)
	assert.Equal(t, "default/web-n1: Pending (0/3)\n", string(said))
	assert.Nil(t, New(None, f, f, os.Getenv).draw)
	d = New(Table, f, f, os.Getenv)
	assert.IsType(t, &screen{}, d.logs.out, "the log goes where the table is")
}

func TestDisplayLooksWhenSomethingChanged(t *testing.T) {
	for _, whole := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			var all []Names
			drawn := func() []Names {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(all)
			}
			var ready atomic.Bool
			d := New(None, os.Stdout, os.Stderr, os.Getenv)
			require.Greater(t, d.period, 2*readyPeriod)
			d.whole = whole
			d.draw = func(names Names, _ []*v1.Pod) {
				mu.Lock()
				defer mu.Unlock()
				all = append(all, names)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				d.Run(ctx, func(Names) []*v1.Pod { return nil }, ready.Load)
			}()
			a, b := types.NamespacedName{Namespace: "ns", Name: "a"}, types.NamespacedName{Namespace: "ns", Name: "b"}
			changed := func(
				pod types.NamespacedName) {
				d.Changed(runtime.PodRef{Namespace: pod.Namespace, Name: pod.Name})
			}
			for range 5 { // a burst
				changed(a)
			}
			time.Sleep(2 * d.delay)
			synctest.Wait()
			assert.Empty(t, drawn(), "not every source has been seen")
			ready.Store(true)
			time.Sleep(readyPeriod)
			synctest.Wait()
			assert.Equal(t, []Names{nil}, drawn(), "what there is is shown as soon as that is all")
			changed(a)
			changed(b)
			changed(a)
			time.Sleep(2 * d.delay)
			synctest.Wait()
			changed(b)
			time.Sleep(2 * d.delay)
			synctest.Wait()
			if want := []Names{nil, {a: true, b: true}, {b: true}}; whole {
				assert.Equal(t, []Names{nil, nil, nil}, drawn())
			} else {
				assert.Equal(t, want, drawn(), "each change is read once")
			}
			time.Sleep(d.period)
			synctest.Wait()
			require.Len(t, drawn(), 4)
			assert.Nil(t, drawn()[3], "all pods from time to time")
			cancel()
			<-done
		})
	}
}

// blocked is a writer without a reader.
type blocked struct{ until chan struct{} }

func (b blocked) Write(data []byte) (int, error) {
	<-b.until
	return len(data), nil
}

func TestLogThatIsBlocked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		until := make(chan struct{})
		d := New(None, os.Stdout, os.Stderr, os.Getenv)
		d.logs.out = blocked{until}
		log := slog.New(d.Handler())
		require.NoError(t, d.LogHealthy())
		go log.Info("a line")
		time.Sleep(maxLogWrite)
		require.NoError(t, d.LogHealthy(), "it may be slow")
		time.Sleep(time.Second)
		require.EqualError(t, d.LogHealthy(), "logging blocked")
		close(until)
		synctest.Wait()
		require.NoError(t, d.LogHealthy())
	})
}
