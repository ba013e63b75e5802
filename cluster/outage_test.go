package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// fault is a way in which the API server fails.
type fault struct {
	name   string
	before func(*apitest.Request) (*http.Response, error)
	// atEnd: requests are accepted and not answered. At the end this happens to those that the node
	// still waits for.
	atEnd func(*apitest.Request) (*http.Response, error)
	// lost: requests are accepted and never answered, also after the end, until the node gives them up
	// or closes their connections.
	lost bool
	// stale: the watch of pods delivers each pod again as it was at first, once a minute.
	stale bool
	// within is the time from the end of the fault to the truth. Default 5 s.
	within time.Duration
}

// answers is the fault that requests are answered with a status.
func answers(code int32, reason metav1.StatusReason, which func(*apitest.Request) bool) fault {
	return fault{name: fmt.Sprint(code), before: func(r *apitest.Request) (*http.Response, error) {
		if !which(r) {
			return nil, nil
		}
		return apitest.Response(nil, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure,
			Code: code, Reason: reason, Message: "an outage"}}), nil
	}}
}

func all(*apitest.Request) bool { return true }

func writes(r *apitest.Request) bool { return !reads(r) }

func reads(r *apitest.Request) bool {
	return r.Verb == "get" || r.Verb == "list" || r.Verb == "watch"
}

func podStatuses(r *apitest.Request) bool { return r.Resource == "pods" && r.Subresource == "status" }

// After an outage of ten minutes the API server shows the truth within 5 seconds, whatever it
// answered meanwhile, and nothing was started again because of it.
func TestTruthAfterAnOutage(t *testing.T) {
	for _, o := range []fault{
		{name: "refused", before: func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection refused") }},
		answers(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, all),
		answers(http.StatusForbidden, metav1.StatusReasonForbidden, all),
		answers(http.StatusConflict, metav1.StatusReasonConflict, writes),
		answers(http.StatusGone, metav1.StatusReasonExpired, reads),
		answers(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, podStatuses),
		answers(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, all),
		answers(http.StatusInternalServerError, metav1.StatusReasonInternalError, all),
		answers(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, all),
		answers(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, all),
		{name: "no answer, then a broken connection", atEnd: func(*apitest.Request) (*http.Response, error) { return nil, errors.New("connection reset by peer") }},
		{name: "no answer, then a late one", atEnd: func(*apitest.Request) (*http.Response, error) { return nil, nil }},
		// The renewal of the lease that was sent last fails 10 s later. Then the node closes its
		// connections, and 3 s later the next one succeeds.
		{name: "no answer ever", lost: true, within: 15 * time.Second},
		{name: "old objects", stale: true},
	} {
		t.Run(o.name, func(t *testing.T) { onNode(t, func(r *rig) { testOutage(r, o) }) })
	}
}

// beginFault begins a fault, and breaks all watches. The function that it returns ends the fault.
func (r *rig) beginFault(o fault) (end func()) {
	ended := make(chan struct{})
	r.api.Before(o.before)
	if o.atEnd != nil || o.lost {
		answered := ended
		if o.lost {
			answered = nil
		}
		r.api.Before(func(req *apitest.Request) (*http.Response, error) {
			select {
			case <-req.HTTP.Context().Done():
				return nil, req.HTTP.Context().Err()
			case <-r.connection():
				return nil, net.ErrClosed
			case <-answered:
				return o.atEnd(req)
			}
		})
	}
	r.api.BreakWatches()
	return func() {
		r.api.Before(nil)
		close(ended)
	}
}

// awaitTruth lets the time pass until there is no difference between the API and the node, and
// returns how long that took since the fault has ended.
func (r *rig) awaitTruth(back time.Time, differences func() []error) time.Duration {
	for {
		errs := differences()
		if len(errs) == 0 || time.Since(back) > 2*time.Minute {
			require.NoError(r, errors.Join(errs...))
			return time.Since(back)
		}
		r.after(50 * time.Millisecond)
	}
}

func testOutage(r *rig, o fault) {
	r.api.Put("secrets", &v1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "db"},
		Data: map[string][]byte{"key": []byte("value")}})
	const pods = 10
	var first []*v1.Pod
	for i := range pods {
		for _, what := range []string{"finishes", "deleted", "stays"} {
			pod := bound(fmt.Sprintf("%s-%d", what, i))
			if what == "finishes" {
				pod.Spec.RestartPolicy = v1.RestartPolicyNever
			}
			first = append(first, r.api.Create(pod))
		}
	}
	first = append(first, r.api.Create(bound("crashes")))
	ending := fake.Target{Pod: "ending"}
	r.rt.Script(ending, fake.Behavior{StopDelay: 10 * time.Second})
	first = append(first, r.api.Create(bound("ending")))
	r.static.Set(newStatic("removed"))
	r.after(time.Minute)
	first = append(first, r.api.Get("default", "removed"))
	r.api.Delete("default", "ending", nil)
	r.after(time.Second)
	end := r.beginFault(o)
	require.Len(r, r.rt.Running(ending), 1)
	r.static.Set()
	for i := range pods {
		r.rt.Exit(fake.Target{Pod: fmt.Sprintf("finishes-%d", i)}, int32(10+i))
		r.api.Delete("default", fmt.Sprintf("deleted-%d", i), nil)
		pod := bound(fmt.Sprintf("created-%d", i))
		pod.Spec.Containers[0].Env = []v1.EnvVar{{Name: "A",
			ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
				LocalObjectReference: v1.LocalObjectReference{Name: "db"}, Key: "key"}}}}
		r.api.Create(pod)
	}
	deliverFirst := func() {
		for _, pod := range first {
			r.api.Event("MODIFIED", pod)
		}
	}
	crashes := 0
	for minute := range 10 {
		crashes += r.rt.Exit(fake.Target{Pod: "crashes"}, 1) // 0 in a back-off
		r.after(time.Minute)
		if o.stale {
			deliverFirst()
		}
		if minute == 0 {
			r.requests()
		}
	}
	require.Empty(r, r.rt.Running(ending))
	requests := r.api.Requests() // but watches
	end()
	back := time.Now()
	if o.stale {
		deliverFirst()
		r.after(time.Second)
	}
	truth := func() (errs []error) {
		for i := range pods {
			if p := r.api.Get("default", fmt.Sprintf("finishes-%d", i)); p.Status.Phase != v1.PodFailed {
				errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
			}
			if p := r.api.Get("default", fmt.Sprintf("deleted-%d", i)); p != nil {
				errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
			}
			if p := r.api.Get("default", fmt.Sprintf("created-%d", i)); p.Status.Phase != v1.PodRunning {
				errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
			}
		}
		for _, name := range []string{"ending", "removed"} {
			if p := r.api.Get("default", name); p != nil {
				errs = append(errs, fmt.Errorf("%s is %s", p.Name, p.Status.Phase))
			}
		}
		restarts := crashes
		if len(r.rt.Running(fake.Target{Pod: "crashes"})) == 0 {
			restarts-- // a back-off follows the last crash
		}
		if p := r.api.Get("default", "crashes"); int(p.Status.ContainerStatuses[0].RestartCount) != restarts {
			errs = append(errs, fmt.Errorf("crashes has %d restarts instead of %d",
				p.Status.ContainerStatuses[0].RestartCount, restarts))
		}
		return errs
	}
	took := map[string]time.Duration{}
	after := r.awaitTruth(back, func() []error {
		errs := truth()
		for _, err := range errs {
			what, _, _ := strings.Cut(strings.Fields(err.Error())[0], "-")
			took[what] = time.Since(back)
		}
		return errs
	})
	r.Logf("the truth is there after %v %v; %.2f requests a second before: %v", after, took, float64(len(requests))/540,
		byKind(requests))
	assert.LessOrEqual(r, after, cmp.Or(o.within, 5*time.Second))
	assert.Less(r, float64(len(requests))/540, 2.0, "requests a second, so that many nodes leave a server alone "+
		"that comes back")
	assert.Greater(r, crashes, 2, "the pod crashed during the outage, and again after its restarts")
	for i := range pods {
		assert.Empty(r, r.rt.Running(fake.Target{Pod: fmt.Sprintf("deleted-%d", i)}))
		assert.Zero(r, r.api.Get("default", fmt.Sprintf("stays-%d", i)).Status.ContainerStatuses[0].RestartCount)
		for _, what := range []string{"stays", "finishes"} {
			assert.Len(r, r.rt.Instances(fake.Target{Pod: fmt.Sprintf("%s-%d", what, i)}), 1, "not started again")
		}
	}
}
