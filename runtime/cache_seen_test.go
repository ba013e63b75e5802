package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestCacheForget(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		forget(c, "unknown")
		a := ask(t.Context(), c, 0)
		s.next(t).answer <- answer{status: seen("1")}
		a.wants(t, "1")
		forget(c, "u")
		assert.Zero(t, c.Statuses())
		assert.Zero(t, c.Entries())

		// A read under way answers its callers, and is not kept.
		a = ask(t.Context(), c, 0)
		call := s.next(t)
		forget(c, "u")
		late := ask(t.Context(), c, c.Now())
		synctest.Wait()
		call.answer <- answer{status: seen("2")}
		a.wants(t, "2")
		_, known := c.Get("u")
		assert.False(t, known)

		// One that began after it is.
		s.next(t).answer <- answer{status: seen("3")}
		late.wants(t, "3")
		status, _ := c.Get("u")
		assert.Equal(t, "3", nameIn(status))
	})
}

func TestCacheForgetUntil(t *testing.T) {
	for _, tc := range []struct {
		name string
		// The mark is drawn before or after the read begins; the pod is forgotten
		// while the read is under way, or after it.
		markFirst, underWay bool
		all                 bool
	}{
		{"older status", false, false, true},
		{"older read under way", false, true, true},
		{"newer status", true, false, false},
		{"newer read under way", true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
				var mark runtime.Mark
				if tc.markFirst {
					mark = c.Now()
				}
				a := ask(t.Context(), c, 0)
				call := s.next(t)
				if !tc.markFirst {
					mark = c.Now()
				}
				if !tc.underWay {
					call.answer <- answer{status: seen("1")}
					a.wants(t, "1")
				}
				assert.Equal(t, tc.all, c.ForgetUntil("u", mark))
				if tc.underWay {
					call.answer <- answer{status: seen("1")}
					a.wants(t, "1")
				}
				_, known := c.Get("u")
				assert.Equal(t, !tc.all, known)
				assert.True(t, c.ForgetUntil("u", c.Now()))
				assert.Zero(t, c.Entries())
				assert.True(t, c.ForgetUntil("u", c.Now()))
			})
		})
	}
}

func TestCacheSeen(t *testing.T) {
	inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
		a := ask(t.Context(), c, 0)
		call := s.next(t)
		assert.Empty(t, c.Seen(""), "the end of the read counts, not its beginning")
		call.answer <- answer{status: seen("1")}
		a.wants(t, "1")
		assert.Empty(t, c.Seen("other"))
		assert.Equal(t, []*runtime.PodStatus{a.status}, c.Seen("u"))
		assert.Empty(t, c.Seen("u"), "each is returned once")
		assert.Empty(t, c.Seen(""))
		_, known := c.Get("u")
		assert.True(t, known)
	})
}

func TestCacheSeenReturnsWhatCallersReceived(t *testing.T) {
	// A read shows a container of that name; "" is a pod that the runtime does not
	// have, "-" a Forget, "-1" a Forget while the read is under way.
	for _, tc := range []struct {
		name          string
		before, after []string // the last call of Seen
		want          []string
	}{
		{"nothing", nil, nil, nil},
		{"returned already", []string{"1", "2"}, nil, nil},
		{"one", nil, []string{"1"}, []string{"1"}},
		{"replaced", nil, []string{"1", "2"}, []string{"1", "2"}},
		{"replaced by the same", nil, []string{"1", "1"}, []string{"1"}},
		{"replaced, and that by the same", nil, []string{"1", "2", "2"}, []string{"1", "2"}},
		{"there and back", nil, []string{"1", "2", "1"}, []string{"2", "1"}},
		{"many", nil, []string{"1", "2", "3"}, []string{"2", "3"}},
		{"replaced what was returned already", []string{"1"}, []string{"2"}, []string{"2"}},
		{"gone", nil, []string{"1", ""}, []string{"1", ""}},
		{"never there", nil, []string{""}, []string{""}},
		{"forgotten", nil, []string{"1", "-"}, []string{"1"}},
		{"forgotten in between", nil, []string{"1", "2", "-", "2"}, []string{"1", "2"}},
		{"forgotten while it was read", nil, []string{"-1"}, []string{"1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *stub, c *runtime.Cache) {
				require.Empty(t, c.Seen(""), "from now on it remembers pods that are gone")
				read := func(what []string) {
					for _, name := range what {
						if name == "-" {
							forget(c, "u")
							continue
						}
						a := ask(t.Context(), c, c.Now())
						call := s.next(t)
						if name, during := strings.CutPrefix(name, "-"); during {
							forget(c, "u")
							call.answer <- answer{status: seen(name)}
							a.wants(t, name)
							continue
						}
						status := seen(name)
						if name == "" {
							status = &runtime.PodStatus{PodRef: testRef}
						}
						call.answer <- answer{status: status}
						a.wants(t, name)
					}
				}
				read(tc.before)
				c.Seen("")
				read(tc.after)
				var got []string
				for _, status := range c.Seen("") {
					got = append(got, nameIn(status))
				}
				assert.Equal(t, tc.want, got)
				assert.Empty(t, c.Seen(""))
				forget(c, "u")
				assert.Zero(t, c.Entries())
			})
		})
	}
}

// versioned is a runtime whose pods have versions that only go up.
type versioned struct {
	mu          sync.Mutex
	versions    map[types.UID]int
	inspections map[types.UID]int
}

func (v *versioned) bump(uid types.UID) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.versions[uid]++
	return v.versions[uid]
}

func (v *versioned) InspectPod(ctx context.Context, ref runtime.PodRef) (*runtime.PodStatus, error) {
	v.mu.Lock()
	v.inspections[ref.UID]++
	alone, version := v.inspections[ref.UID] == 1, v.versions[ref.UID]
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		v.inspections[ref.UID]--
		v.mu.Unlock()
	}()
	if !alone {
		panic("two inspections of one pod at once")
	}
	if rand.IntN(8) == 0 {
		return nil, runtime.ErrUnavailable
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return &runtime.PodStatus{PodRef: ref, Containers: []runtime.ContainerStatus{{ExitCode: int32(version)}}}, nil
}

// TestCacheAtOnce has many callers change, read and forget pods side by side. A status that
// was read after a mark must show all changes before the mark.
func TestCacheAtOnce(t *testing.T) {
	v := &versioned{versions: map[types.UID]int{}, inspections: map[types.UID]int{}}
	c := runtime.NewCache(v, runtime.CacheOptions{})
	var callers sync.WaitGroup
	for range 16 {
		callers.Go(func() {
			for range 500 {
				uid := types.UID(fmt.Sprint(rand.IntN(3)))
				ctx, cancel := context.WithCancel(t.Context())
				switch rand.IntN(12) {
				case 0:
					forget(c, uid)
				case 1:
					c.ForgetUntil(uid, c.Now())
				case 2:
					cancel()
				case 3:
					go cancel()
				case 4:
					_ = c.Seen("")
				case 5:
					_ = c.Seen(uid)
				}
				least := v.bump(uid)
				after := c.Now()
				status, err := c.Newer(ctx, runtime.PodRef{UID: uid}, after)
				switch {
				case err != nil:
					if !errors.Is(err, runtime.ErrUnavailable) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				case status.Mark <= after || int(status.Containers[0].ExitCode) < least:
					t.Errorf("status %d of mark %d, want at least %d after %d", status.Containers[0].ExitCode,
						status.Mark, least, after)
				}
				cancel()
			}
		})
	}
	callers.Wait()
	for i := range 3 {
		forget(c, types.UID(fmt.Sprint(i)))
	}
	_ = c.Seen("")
	assert.Zero(t, c.Entries())
}

func BenchmarkCacheNewerFromMemory(b *testing.B) {
	v := &versioned{versions: map[types.UID]int{}, inspections: map[types.UID]int{}}
	c := runtime.NewCache(v, runtime.CacheOptions{})
	for c.Statuses() == 0 {
		_, _ = c.Newer(b.Context(), testRef, 0)
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			_, _ = c.Newer(b.Context(), testRef, 0)
		}
	})
}
