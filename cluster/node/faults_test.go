package node

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// silent is a server that accepts calls and never answers.
type silent struct{ calls atomic.Int32 }

func (s *silent) RoundTrip(req *http.Request) (*http.Response, error) {
	s.calls.Add(1)
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestServerThatNeverAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &silent{}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "https://192.0.2.1", Transport: server})
		require.NoError(t, err)
		s := newScene(t)
		n, err := New(client, "n", s.opts)
		require.NoError(t, err)
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		go func() { done <- n.Run(ctx) }()
		require.NoError(t, <-done)
		assert.Equal(t, int32(6), server.calls.Load(), "each call ends after 10 s, and back-off follows")
		assert.Nil(t, n.Current())
	})
}

// An agent whose lease another one has taken, because their clocks differ, stops.
func TestLeaseIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var conflict atomic.Bool
		s.api.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
			return conflict.Load(), nil, apierrors.NewConflict(a.GetResource().GroupResource(), "n", nil)
		})
		s.start()
		s.after(time.Minute)
		leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
		found, err := s.api.Tracker().Get(leases, v1.NamespaceNodeLease, "n")
		require.NoError(t, err)
		taken := s.node.s.renewed(found.(*coordinationv1.Lease), s.object(), identity{"m9", "u9", "/x"},
			time.Now().Add(time.Hour))
		require.NoError(t, s.api.Tracker().Update(leases, taken, v1.NamespaceNodeLease))
		conflict.Store(true)
		s.after(11 * time.Second)
		err = s.stop()
		require.ErrorIs(t, err, ErrNodeInUse)
		require.ErrorContains(t, err, "m9/u9//x")
	})
}

// The clock of the former agent of the node was hours ahead: its lease is in the future, also after it
// was not renewed for its duration.
func TestLeaseInTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: v1.NamespaceNodeLease,
				Annotations: map[string]string{IdentityAnnotation: "m9/u9//x"}},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now().Add(5 * time.Hour)}},
		}
		leases := s.api.CoordinationV1().Leases(v1.NamespaceNodeLease)
		_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
		require.NoError(t, err)
		s.start()
		s.after(2 * time.Minute)
		require.NoError(t, s.stop())
		found, err := leases.Get(t.Context(), "n", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Equal(t, s.node.me.String(), found.Annotations[IdentityAnnotation])
		assert.True(t, found.Spec.RenewTime.Before(&metav1.MicroTime{Time: time.Now()}))
	})
}

// A lease that another agent has, and that was never renewed, is taken over.
func TestLeaseWithoutATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var conflicts atomic.Int32
		s.api.PrependReactor("update", "leases", func(a clienttesting.Action) (bool, apiruntime.Object, error) {
			return conflicts.Add(-1) >= 0, nil, apierrors.NewConflict(a.GetResource().GroupResource(), "n", nil)
		})
		s.start()
		s.after(time.Minute)
		leases := coordinationv1.SchemeGroupVersion.WithResource("leases")
		found, err := s.api.Tracker().Get(leases, v1.NamespaceNodeLease, "n")
		require.NoError(t, err)
		taken := s.node.s.renewed(found.(*coordinationv1.Lease), s.object(), identity{"m9", "u9", "/x"}, time.Now())
		taken.Spec.RenewTime = nil
		require.NoError(t, s.api.Tracker().Update(leases, taken, v1.NamespaceNodeLease))
		conflicts.Store(1)
		s.after(11 * time.Second)
		require.NoError(t, s.stop())
		found, err = s.api.Tracker().Get(leases, v1.NamespaceNodeLease, "n")
		require.NoError(t, err)
		lease := found.(*coordinationv1.Lease)
		assert.Equal(t, s.node.me.String(), lease.Annotations[IdentityAnnotation])
		assert.NotNil(t, lease.Spec.RenewTime)
	})
}

// A kubelet renews without the annotation: its lease on another machine is not taken over.
func TestKubeletOnAnotherMachine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := existingNode()
		node.Status.NodeInfo.MachineID = "m2"
		s := newScene(t, node)
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "n", Namespace: v1.NamespaceNodeLease},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: time.Now()}}}
		leases := s.api.CoordinationV1().Leases(v1.NamespaceNodeLease)
		_, err := leases.Create(t.Context(), lease, metav1.CreateOptions{})
		require.NoError(t, err)
		s.start()
		s.after(10 * time.Second)
		lease.Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		_, err = leases.Update(t.Context(), lease, metav1.UpdateOptions{})
		require.NoError(t, err)
		s.after(3 * time.Second)
		err = s.stop()
		require.ErrorIs(t, err, ErrNodeInUse)
		require.ErrorContains(t, err, "a kubelet on the machine m2")
	})
}

// A server that answers with errors has working connections: they are not closed.
func TestHeartbeatsThatAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		var busy atomic.Bool
		for _, verb := range []string{"update", "patch"} {
			s.api.PrependReactor(verb, "*", func(clienttesting.Action) (bool, apiruntime.Object, error) {
				return busy.Load(), nil, apierrors.NewTooManyRequests("slow", 1)
			})
		}
		s.start()
		s.after(time.Minute)
		busy.Store(true)
		s.health.set(errors.New("disk on fire")) // so that there is something to report
		s.after(5 * time.Minute)
		s.mu.Lock()
		assert.Zero(t, s.conns)
		s.mu.Unlock()
		require.NoError(t, s.stop())
	})
}

// Errors of every kind are repeated, and the node is registered in the end.
func TestErrorsWhileRegistering(t *testing.T) {
	resource := v1.SchemeGroupVersion.WithResource("nodes").GroupResource()
	for name, fault := range map[string]error{
		"401": apierrors.NewUnauthorized("no"),
		"403": apierrors.NewForbidden(resource, "n", nil),
		"409": apierrors.NewConflict(resource, "n", nil),
		"422": apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Node").GroupKind(), "n", nil),
		"429": apierrors.NewTooManyRequests("slow", 1),
		"500": apierrors.NewInternalError(errDown),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newScene(t)
				failures := 5
				s.api.PrependReactor("*", "*", func(clienttesting.Action) (bool, apiruntime.Object, error) {
					s.mu.Lock()
					defer s.mu.Unlock()
					failures--
					return failures >= 0, nil, fault
				})
				s.start()
				s.after(30 * time.Second)
				assert.NotNil(t, s.node.Current())
				require.NoError(t, s.stop())
			})
		})
	}
}

// Without the right to create its object, a node adopts it, unless it does so only when it is told that the object
// exists.
func TestRegistrationIsForbidden(t *testing.T) {
	for _, existsOnly := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newScene(t, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "1"}})
			s.opts.GetOnExistsOnly = existsOnly
			s.api.PrependReactor("create", "nodes", func(clienttesting.Action) (bool, apiruntime.Object, error) {
				return true, nil, apierrors.NewForbidden(v1.Resource("nodes"), "n", nil)
			})
			s.start()
			s.after(30 * time.Second)
			assert.Equal(t, existsOnly, s.node.Current() == nil)
			require.NoError(t, s.stop())
		})
	}
}

// Nothing is called before there are credentials.
func TestWaitsForCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		available := make(chan struct{})
		s.opts.Available = func(ctx context.Context) error {
			select {
			case <-available:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s.start()
		s.after(time.Minute)
		assert.Empty(t, s.take())
		close(available)
		synctest.Wait()
		assert.NotNil(t, s.node.Current())
		require.NoError(t, s.stop())

		available = make(chan struct{})
		s.start()
		s.after(time.Second)
		require.NoError(t, s.stop())
	})
}

// A server that was away shows the truth within 5 seconds after its return: the controllers
// have marked the node meanwhile.
func TestTruthAfterOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		s.start()
		s.after(time.Minute)
		s.setDown(true)
		s.breakWatches()
		s.after(10 * time.Minute)
		marked := s.object().DeepCopy()
		condition(marked.Status.Conditions, v1.NodeReady).Status = v1.ConditionUnknown
		marked.ResourceVersion = "5000"
		require.NoError(t, s.api.Tracker().Update(v1.SchemeGroupVersion.WithResource("nodes"), marked, ""))
		s.setDown(false)
		s.after(5 * time.Second)
		assert.Equal(t, v1.ConditionTrue, condition(s.object().Status.Conditions, v1.NodeReady).Status)
		lease, err := s.api.CoordinationV1().Leases(v1.NamespaceNodeLease).Get(t.Context(), "n", metav1.GetOptions{})
		require.NoError(t, err)
		assert.Less(t, time.Since(lease.Spec.RenewTime.Time), 5*time.Second)
		require.NoError(t, s.stop())
	})
}

// imagesFunc is a function that is an Images.
type imagesFunc func(ctx context.Context) ([]v1.ContainerImage, error)

func (f imagesFunc) NodeImages(ctx context.Context) ([]v1.ContainerImage, error) { return f(ctx) }

// A runtime that does not list its images delays neither the registration nor reports.
func TestImagesThatTakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScene(t)
		listed := make(chan struct{})
		s.opts.Images = imagesFunc(func(ctx context.Context) ([]v1.ContainerImage, error) {
			select {
			case <-listed:
				return []v1.ContainerImage{{Names: []string{"a:1"}, SizeBytes: 1}}, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		s.start()
		synctest.Wait()
		assert.NotNil(t, s.node.Current())
		s.after(time.Minute)
		s.health.set(errDown)
		s.node.Update()
		synctest.Wait()
		assert.Equal(t, v1.ConditionFalse, condition(s.object().Status.Conditions, v1.NodeReady).Status)
		assert.Empty(t, s.object().Status.Images)
		close(listed)
		synctest.Wait()
		assert.Len(t, s.object().Status.Images, 1, "at once")
		s.take()
		s.after(time.Minute)
		assert.Zero(t, count(s.take(), "patch nodes"), "the same images are no change")
		require.NoError(t, s.stop())
	})
}
