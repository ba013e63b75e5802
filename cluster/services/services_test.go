package services_test

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kubeletkit/kubeletkit/cluster/services"
	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// world is Services that run, in a synctest bubble, with their API server.
type world struct {
	*services.Services
	t      *testing.T
	client *apitest.Clientset

	mu       sync.Mutex
	fail     error
	requests []string
	synced   []types.UID
}

func run(t *testing.T, d *apitest.Disk, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, client: apitest.NewClientset()}
		request := func(a clienttesting.Action) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.requests = append(w.requests, a.GetVerb())
			return w.fail
		}
		w.client.PrependReactor("list", "services", func(a clienttesting.Action) (bool, kruntime.Object, error) {
			assert.Equal(t, "spec.clusterIP!=None", a.(clienttesting.ListAction).GetListRestrictions().Fields.String())
			err := request(a)
			return err != nil, nil, err
		})
		opts := services.Options{Sync: func(uid types.UID) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.synced = append(w.synced, uid)
		}}
		if d != nil {
			opts.Checkpoint = d
		}
		var err error
		w.Services, err = services.New(w.client, opts)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		test(w)
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.ErrorIs(t, w.Run(ctx), runtime.ErrAlreadyRunning)
	})
}

func (w *world) setFail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fail = err
}

func (w *world) take() []types.UID {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	synced := w.synced
	w.synced = nil
	return synced
}

func (w *world) create(s *v1.Service) {
	w.t.Helper()
	_, err := w.client.CoreV1().Services(s.Namespace).Create(w.t.Context(), s, metav1.CreateOptions{})
	require.NoError(w.t, err)
	synctest.Wait()
}

// hosts returns the values of the variables *_SERVICE_HOST.
func (w *world) hosts(pod *v1.Pod) (string, error) {
	env, err := w.Env(w.t.Context(), pod)
	var hosts []string
	for _, v := range env {
		if name, ok := strings.CutSuffix(v.Name, "_SERVICE_HOST"); ok {
			hosts = append(hosts, name+"="+v.Value)
		}
	}
	return strings.Join(hosts, " "), err
}

func makeService(namespace, name, ip string) *v1.Service {
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       v1.ServiceSpec{ClusterIP: ip, Ports: []v1.ServicePort{{Port: 80}}},
	}
}

func makePod(namespace string, links bool) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p", UID: "u"},
		Spec:       v1.PodSpec{EnableServiceLinks: &links},
	}
}

func TestServicesOfAPod(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		for _, s := range []*v1.Service{
			makeService("default", "kubernetes", "10.0.0.1"), makeService("default", "other", "10.0.0.2"),
			makeService("shop", "web", "10.0.0.3"), makeService("shop", "a-b", "10.0.0.4"),
			makeService("shop", "headless", v1.ClusterIPNone), makeService("shop", "external", ""),
			makeService("own", "kubernetes", "10.0.0.5"),
		} {
			w.create(s)
		}
		for _, tt := range []struct {
			namespace string
			links     bool
			want      string
		}{
			{"shop", true, "A_B=10.0.0.4 KUBERNETES=10.0.0.1 WEB=10.0.0.3"},
			{"shop", false, "KUBERNETES=10.0.0.1"},
			{"default", true, "KUBERNETES=10.0.0.1 OTHER=10.0.0.2"},
			{"default", false, "KUBERNETES=10.0.0.1"},
			{"own", true, "KUBERNETES=10.0.0.5"},
			{"own", false, "KUBERNETES=10.0.0.1"},
			{"empty", true, "KUBERNETES=10.0.0.1"},
		} {
			hosts, err := w.hosts(makePod(tt.namespace, tt.links))
			require.NoError(t, err)
			assert.Equal(t, tt.want, hosts, tt)
		}
		byDefault := makePod("shop", true)
		byDefault.Spec.EnableServiceLinks = nil
		hosts, err := w.hosts(byDefault)
		require.NoError(t, err)
		assert.Contains(t, hosts, "WEB")
	})
}

func TestServicesChange(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		hosts, err := w.hosts(makePod("shop", true))
		require.NoError(t, err)
		assert.Empty(t, hosts)
		w.create(makeService("shop", "web", "10.0.0.3"))
		hosts, _ = w.hosts(makePod("shop", true))
		assert.Equal(t, "WEB=10.0.0.3", hosts)
		_, err = w.client.CoreV1().Services("shop").Update(w.t.Context(), makeService("shop", "web", v1.ClusterIPNone),
			metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		hosts, _ = w.hosts(makePod("shop", true))
		assert.Empty(t, hosts)
		w.create(makeService("shop", "db", "10.0.0.4"))
		require.NoError(t, w.client.CoreV1().Services("shop").Delete(w.t.Context(), "db", metav1.DeleteOptions{}))
		synctest.Wait()
		hosts, _ = w.hosts(makePod("shop", true))
		assert.Empty(t, hosts)
	})
}

func TestNothingIsRequestedBeforeTheFirstPod(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		time.Sleep(time.Hour)
		assert.Empty(t, w.requests)
	})
}

func TestServicesAreNotKnown(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		w.create(makeService("shop", "web", "10.0.0.3"))
		w.setFail(errors.New("connection refused"))
		_, err := w.hosts(makePod("shop", true))
		require.ErrorIs(t, err, services.ErrNotRead)
		assert.EqualError(t, err, "services have not yet been read at least once, cannot construct envvars: the API "+
			"server has not answered yet: connection refused")
		start := time.Now()
		_, err = w.hosts(makePod("shop", true))
		require.ErrorIs(t, err, services.ErrNotRead)
		assert.Zero(t, time.Since(start), "only the first one waits")
		static := makePod("shop", true)
		static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
		_, err = w.hosts(static)
		require.NoError(t, err, "static pods do not wait")
		assert.Empty(t, w.take())
		time.Sleep(10 * time.Minute)
		w.setFail(nil)
		time.Sleep(10 * time.Second)
		assert.Equal(t, []types.UID{"u"}, w.take())
		hosts, err := w.hosts(static)
		require.NoError(t, err)
		assert.Equal(t, "WEB=10.0.0.3", hosts)
		ctx, cancel := context.WithCancel(w.t.Context())
		cancel()
		_, err = w.Env(ctx, makePod("shop", true))
		require.NoError(t, err, "what is known needs no waiting")
	})
}

func TestServicesOfTheLastRun(t *testing.T) {
	t.Parallel()
	var d apitest.Disk
	run(t, &d, func(w *world) {
		w.create(makeService("shop", "web", "10.0.0.3"))
		_, err := w.hosts(makePod("shop", true))
		require.NoError(t, err)
		time.Sleep(2 * time.Second)
		w.create(makeService("shop", "db", "10.0.0.4")) // kept at the end
	})
	run(t, &d, func(w *world) {
		w.setFail(errors.New("connection refused"))
		hosts, err := w.hosts(makePod("shop", true))
		require.NoError(t, err)
		assert.Equal(t, "DB=10.0.0.4 WEB=10.0.0.3", hosts)
		w.create(makeService("shop", "new", "10.0.0.5"))
		w.setFail(nil)
		time.Sleep(10 * time.Second)
		hosts, _ = w.hosts(makePod("shop", true))
		assert.Equal(t, "NEW=10.0.0.5", hosts)
	})
}

// A service of the checkpoint may be any.
func TestServiceWithoutPortsInTheCheckpoint(t *testing.T) {
	t.Parallel()
	var d apitest.Disk
	d.KeepState("services",
		map[string]any{"shop/web": map[string]any{"namespace": "shop", "name": "web", "ip": "10.0.0.3"}})
	run(t, &d, func(w *world) {
		w.setFail(errors.New("connection refused"))
		hosts, err := w.hosts(makePod("shop", true))
		require.NoError(t, err)
		assert.Empty(t, hosts)
	})
}

func TestVariables(t *testing.T) {
	t.Parallel()
	s := makeService("ns", "my-db", "fd00::1")
	s.Spec.Ports = []v1.ServicePort{{Port: 53, Protocol: v1.ProtocolUDP, Name: "dns-udp"}, {Port: 80}}
	var got []string
	for _, v := range services.Variables(s, makeService("ns", "none", "")) {
		got = append(got, v.Name+"="+v.Value)
	}
	assert.Equal(t, []string{
		"MY_DB_SERVICE_HOST=fd00::1", "MY_DB_SERVICE_PORT=53", "MY_DB_SERVICE_PORT_DNS_UDP=53",
		"MY_DB_PORT=udp://[fd00::1]:53",
		"MY_DB_PORT_53_UDP=udp://[fd00::1]:53", "MY_DB_PORT_53_UDP_PROTO=udp", "MY_DB_PORT_53_UDP_PORT=53",
		"MY_DB_PORT_53_UDP_ADDR=fd00::1",
		"MY_DB_PORT_80_TCP=tcp://[fd00::1]:80", "MY_DB_PORT_80_TCP_PROTO=tcp", "MY_DB_PORT_80_TCP_PORT=80",
		"MY_DB_PORT_80_TCP_ADDR=fd00::1",
	}, got)
}

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := services.New(nil, services.Options{})
	require.EqualError(t, err, "services: the client is nil")
}

// The variables of services of a user's own do not fill the memory: one service may have 65,535 ports.
func TestTooManyVariables(t *testing.T) {
	t.Parallel()
	run(t, nil, func(w *world) {
		list := &v1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
		for i := range 2 {
			s := makeService("shop", fmt.Sprint("web-", i), "10.0.0.3")
			s.Spec.Ports = nil
			for port := range int32(65_535) {
				s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Port: port + 1})
			}
			list.Items = append(list.Items, *s)
		}
		// The tracker of the fake client takes seconds for such a service.
		w.client.PrependReactor("list", "services", func(clienttesting.Action) (bool, kruntime.Object,
			error) {
			return true, list, nil
		})
		_, err := w.Env(w.t.Context(), makePod("other", true))
		require.NoError(t, err)
		static := makePod("shop", true)
		static.Annotations = map[string]string{podspec.AnnotationConfigSource: "file"}
		for _, pod := range []*v1.Pod{makePod("shop", true), static} {
			var before, after goruntime.MemStats
			goruntime.ReadMemStats(&before)
			env, err := w.Env(w.t.Context(), pod)
			goruntime.ReadMemStats(&after)
			require.ErrorIs(t, err, podspec.ErrTooLong)
			require.ErrorContains(t, err, "services in namespace shop")
			assert.Empty(t, env)
			assert.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(80), "MiB")
		}
		_, err = w.Env(w.t.Context(), makePod("shop", false))
		require.NoError(t, err)
	})
}
