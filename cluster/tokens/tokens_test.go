package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/internal/outage"
	"github.com/kubeletkit/kubeletkit/cluster/internal/outage/outagetest"
	"github.com/kubeletkit/kubeletkit/cluster/tokens"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// world is Tokens that run, in a synctest bubble, with their API server.
type world struct {
	*tokens.Tokens
	t     *testing.T
	start time.Time

	mu        sync.Mutex
	fail      error
	skew      time.Duration // of the clock of the API server; set before the first request
	during    func()        // called during each request
	made      int
	tries     int
	refreshed []types.UID
	log       strings.Builder
	signal    outage.Signal
}

func run(t *testing.T, d *apitest.Disk, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, start: time.Now()}
		client := apitest.NewClientset()
		client.PrependReactor("create", "serviceaccounts", func(a clienttesting.Action) (bool, kruntime.Object, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.tries++
			if w.fail != nil {
				return true, nil, w.fail
			}
			if w.during != nil {
				w.during()
			}
			w.made++
			assert.Equal(t, "token", a.GetSubresource())
			answer := a.(clienttesting.CreateActionImpl).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
			if answer.Spec.ExpirationSeconds == nil {
				answer.Spec.ExpirationSeconds = new(int64(3600))
			}
			answer.Status.Token = fmt.Sprintf("secret-%d", w.made)
			answer.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(w.skew +
				time.Duration(*answer.Spec.ExpirationSeconds)*time.Second))
			return true, answer, nil
		})
		opts := tokens.Options{
			Refreshed: func(uid types.UID) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.refreshed = append(w.refreshed, uid)
			},
			Logger: funcr.New(func(_, args string) {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.log.WriteString(args + "\n")
			}, funcr.Options{Verbosity: 9}),
		}
		if d != nil {
			opts.Checkpoint = d
		}
		var err error
		w.Tokens, err = tokens.New(w.signal.Client(client), opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		test(w)
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.ErrorIs(t, w.Run(ctx), runtime.ErrAlreadyRunning)
		assert.NotContains(t, w.log.String(), "secret-")
	})
}

func (w *world) set(fail error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = fail
}

func (w *world) counts() (tries, made, refreshed, lines int) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.tries, w.made, len(w.refreshed), strings.Count(w.log.String(), "\n")
}

func (w *world) token(r *authenticationv1.TokenRequest) string {
	w.t.Helper()
	token, err := w.Token(w.t.Context(), "ns", "sa", r)
	if err != nil {
		return err.Error()
	}
	return token.Status.Token
}

func (w *world) sleepUntil(sinceStart time.Duration) { time.Sleep(time.Until(w.start.Add(sinceStart))) }

func request(uid string, seconds int64, audiences ...string) *authenticationv1.TokenRequest {
	return &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds, Audiences: audiences,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "p-" + uid,
			UID: types.UID(uid)},
	}}
}

var (
	errAway = errors.New("connection refused")
	errGone = apierrors.NewNotFound(v1.Resource("pods"), "p-u")
)

func pod(uid string, phase v1.PodPhase) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: v1.PodStatus{Phase: phase}}
}

func TestATokenForEachRequest(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		for range 2 {
			assert.Equal(t, "secret-1", w.token(request("u", 3600)))
		}
		for i, other := range []*authenticationv1.TokenRequest{
			request("v", 3600), request("u", 7200), request("u", 3600, "vault"), request("u", 3600, "a", "b"), {},
			{ObjectMeta: metav1.ObjectMeta{UID: "account"}},
		} {
			want := fmt.Sprintf("secret-%d", i+2)
			assert.Equal(t, want, w.token(other))
			assert.Equal(t, want, w.token(other))
		}
	})
}

func TestRefreshes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		seconds int64
		after   time.Duration
	}{
		{600, 480 * time.Second}, {3607, 2885 * time.Second}, {30 * 24 * 3600, 24 * time.Hour},
		{50 * 365 * 24 * 3600, 24 * time.Hour}, {1 << 32, 24 * time.Hour}, // the API's maximum
	} {
		run(t, nil, func(w *world) {
			require.Equal(t, "secret-1", w.token(request("u", c.seconds)))
			w.sleepUntil(c.after - 11*time.Second)
			assert.Equal(t, "secret-1", w.token(request("u", c.seconds)))
			w.sleepUntil(c.after + time.Second)
			_, made, refreshed, _ := w.counts()
			assert.Equal(t, []int{2, 1}, []int{made, refreshed}, "nobody has asked for it")
			assert.Equal(t, "secret-2", w.token(request("u", c.seconds)))
		})
	}
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		require.Equal(t, "secret-1", w.token(request("u", 600)))
		w.set(errAway)
		w.sleepUntil(590 * time.Second)
		assert.Equal(t, "secret-1", w.token(request("u", 600)), "it has not expired")
		tries, _, _, lines := w.counts()
		assert.InDelta(t, 8, tries, 3, "1 s, 2 s, 4 s …")
		assert.Equal(t, 1, lines)
		w.sleepUntil(24 * time.Hour)
		assert.Equal(t, "secret-1", w.token(request("u", 600)), "there is no other")
		assert.Equal(t, "failed to fetch token: connection refused", w.token(request("v", 600)))
		w.set(nil)
		time.Sleep(91 * time.Second)
		_, made, refreshed, _ := w.counts()
		assert.Equal(t, []int{2, 1}, []int{made, refreshed})
		assert.Equal(t, "secret-2", w.token(request("u", 600)))
	})
}

// At the end of an outage pods whose tokens could not be had are synced at once, and what could
// not be refreshed is.
func TestOutageEnds(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		require.Equal(t, "secret-1", w.token(request("u", 600)))
		w.set(errAway)
		for _, uid := range []string{"v", "gone"} {
			assert.Equal(t, "failed to fetch token: connection refused", w.token(request(uid, 600)))
		}
		w.Update(nil, []*v1.Pod{pod("gone", v1.PodRunning)})
		time.Sleep(590 * time.Second)
		synctest.Wait()
		w.set(nil)
		outagetest.End(t.Context(), &w.signal)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		assert.ElementsMatch(t, []types.UID{"u", "v"}, w.refreshed)
	})
}

func TestServerRefuses(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		require.Equal(t, "secret-1", w.token(request("u", 600)))
		w.set(apierrors.NewForbidden(v1.Resource("serviceaccounts"), "sa", errors.New("no")))
		w.sleepUntil(590 * time.Second)
		assert.Equal(t, "secret-1", w.token(request("u", 600)), "it has not expired")
		w.sleepUntil(20 * time.Minute)
		assert.Contains(t, w.token(request("u", 600)), `failed to fetch token: serviceaccounts "sa" is forbidden`)
		before, _, _, _ := w.counts()
		time.Sleep(time.Hour)
		after, _, _, _ := w.counts()
		assert.Equal(t, before, after, "it is forgotten")
	})
}

// The API server knows better than the list of pods that a pod is gone.
func TestServerHasNoSuchPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err   error
		tries int
	}{
		"pod":    {errGone, 2},
		"UID":    {apierrors.NewConflict(v1.Resource("serviceaccounts/token"), "sa", errors.New("the UID in the bound object reference does not match")), 2},
		"proxy":  {apierrors.NewGenericServerResponse(http.StatusNotFound, "post", v1.Resource("serviceaccounts"), "sa", "<html>", 0, true), 9},
		"outage": {errAway, 9},
	} {
		run(t, nil, func(w *world) {
			require.Equal(t, "secret-1", w.token(request("u", 600)))
			w.set(c.err)
			w.sleepUntil(590 * time.Second)
			tries, _, _, _ := w.counts()
			assert.InDelta(t, c.tries, tries, float64(c.tries/3), name)
		})
	}
}

// A pod that went while no agent ran is not in the first complete list.
func TestTokensOfPodsThatWentUnseen(t *testing.T) {
	t.Parallel()
	var d apitest.Disk
	run(t, &d, func(w *world) {
		w.token(request("stays", 3600))
		w.token(request("went", 3600))
		w.token(request("ended", 3600))
		w.token(&authenticationv1.TokenRequest{}) // of no pod
	})
	run(t, &d, func(w *world) {
		w.Retain([]*v1.Pod{pod("stays", v1.PodRunning), pod("ended", v1.PodFailed)})
		time.Sleep(50 * time.Minute)
		_, made, _, _ := w.counts()
		assert.Equal(t, 2, made)
		assert.Equal(t, []types.UID{"stays"}, w.refreshed)
	})
}

// The token of a pod that goes while the token is requested is not kept.
func TestTokensOfPodsThatGoDuringTheRequest(t *testing.T) {
	t.Parallel()
	for name, goes := range map[string]func(w *world){
		"removed":  func(w *world) { w.Update(nil, []*v1.Pod{pod("u", "")}) },
		"unlisted": func(w *world) { w.Retain(nil) },
	} {
		run(t, nil, func(w *world) {
			w.during = func() { goes(w) }
			assert.Equal(t, "secret-1", w.token(request("u", 600)), name)
			w.during = nil
			time.Sleep(20 * time.Minute)
			_, made, _, _ := w.counts()
			assert.Equal(t, 1, made, name)
			assert.Equal(t, "secret-2", w.token(request("u", 600)), "one that is asked for later is kept")
			time.Sleep(9 * time.Minute)
			_, made, _, _ = w.counts()
			assert.Equal(t, 3, made, name)
		})
	}
}

func TestTokensOfPodsThatEnd(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		for _, uid := range []string{"removed", "ended", "failed", "runs"} {
			w.token(request(uid, 600))
		}
		w.Update([]*v1.Pod{pod("ended", v1.PodSucceeded), pod("failed", v1.PodFailed), pod("runs", v1.PodRunning)},
			[]*v1.Pod{pod("removed", v1.PodRunning)})
		time.Sleep(490 * time.Second)
		_, _, refreshed, _ := w.counts()
		assert.Equal(t, 1, refreshed)
		assert.Equal(t, []types.UID{"runs"}, w.refreshed)
		assert.Equal(t, "secret-6", w.token(request("removed", 600)))
	})
}

func TestClocksDiffer(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		run(t, nil, func(w *world) {
			w.skew = skew
			w.token(request("u", 600))
			w.sleepUntil(460 * time.Second)
			w.token(request("u", 600))
			tries, _, _, _ := w.counts()
			assert.Equal(t, 1, tries)
			w.sleepUntil(490 * time.Second)
			tries, _, _, _ = w.counts()
			assert.Equal(t, 2, tries)
		})
	}
}

func TestTokensOfTheLastRun(t *testing.T) {
	t.Parallel()
	var d apitest.Disk
	run(t, &d, func(w *world) {
		w.token(request("u", 3600, "a", "b"))
		w.token(request("gone", 3600))
		time.Sleep(2 * time.Second)
		assert.Contains(t, d.Kept("tokens"), "secret-1")
		w.Update(nil, []*v1.Pod{pod("gone", "")}) // kept at the end
	})
	run(t, &d, func(w *world) {
		w.set(errAway)
		assert.Equal(t, "secret-1", w.token(request("u", 3600, "a", "b")))
		assert.Equal(t, "failed to fetch token: connection refused", w.token(request("gone", 3600)))
		w.sleepUntil(30 * time.Minute)
	})
	run(t, &d, func(w *world) { // its clock is that of the first run again: it was set back
		assert.Equal(t, "secret-1", w.token(request("u", 3600, "a", "b")))
		w.sleepUntil(49 * time.Minute)
		_, made, _, _ := w.counts()
		assert.Equal(t, 1, made, "refreshed at the same time as in the first run")
	})
	d.KeepState("tokens", []map[string]any{{"namespace": "ns"}, {"token": map[string]any{}}})
	run(t, &d, func(w *world) { assert.Equal(t, "secret-1", w.token(request("u", 3600))) })
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := tokens.New(nil, tokens.Options{})
	require.EqualError(t, err, "tokens: the client is nil")
}

// A token whose lifetime is absurd is requested once a minute at most.
func TestAbsurdLifetimes(t *testing.T) {
	t.Parallel()
	for _, seconds := range []int64{-1 << 62, -1, 0, 1, 9, 60, 1 << 62} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			t.Parallel()
			run(t, nil, func(w *world) {
				w.during = func() {
					if w.made > 1000 {
						time.Sleep(time.Hour) // else a loop without a pause would stop the virtual time
					}
				}
				w.token(request("u", seconds))
				time.Sleep(10 * time.Minute)
				_, made, refreshed, _ := w.counts()
				assert.LessOrEqual(t, made, 11)
				assert.LessOrEqual(t, refreshed, 11)
			})
		})
	}
}

// One pod does not make the record so large that no token of any pod is kept.
func TestKeptTokensAreBounded(t *testing.T) {
	t.Parallel()
	var d apitest.Disk
	run(t, &d, func(w *world) {
		for i := range 1000 {
			w.token(request("many", 3600, fmt.Sprint(i)))
		}
		w.token(request("one", 3600))
		time.Sleep(2 * time.Second)
		assert.Equal(t, 33, strings.Count(d.Kept("tokens"), "\"account\""))
		assert.Contains(t, d.Kept("tokens"), "p-one")
	})
}
