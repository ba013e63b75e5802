package podstatus_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/internal/apitest"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// foreign is the type of a condition of another writer.
const foreign = v1.PodConditionType("example.com/foreign")

// model is an agent with the sink, over an API server that fails, with users and controllers
// that interfere. It says what must hold at any time, and when all is quiet.
type model struct {
	*rig

	// pods has what the node knows: the pods that the agent runs or has ended.
	pods map[types.UID]*modelPod
	// statics has the static pods by name.
	statics map[string]*modelPod
	counter int

	mu sync.Mutex
	// fault is what the API server does with requests: 0 nothing.
	fault int
	// conditions has the last value of the foreign condition, by UID.
	conditions map[types.UID]string
	phases     map[types.UID]v1.PodPhase
	broken     error
}

type modelPod struct {
	pod   *v1.Pod
	ready bool
	over  bool
}

func (p *modelPod) status() v1.PodStatus {
	s := running(p.ready)
	if p.over {
		s = ended(v1.PodSucceeded)
	}
	s.HostIP = string(p.pod.UID) // so that each status shows whose it is
	return s
}

func (m *model) violated(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken == nil {
		m.broken = fmt.Errorf(format, args...)
	}
}

// before is what the API server does with a request.
func (m *model) before(r *apitest.Request) (*http.Response, error) {
	if r.Verb == "delete" {
		m.checkDelete(r)
	}
	m.mu.Lock()
	fault := m.fault
	m.mu.Unlock()
	switch fault {
	case 1:
		return nil, errors.New("connection refused")
	case 2:
		return apitest.Hang(r)
	case 3:
		return apitest.Response(nil, apierrors.NewInternalError(errors.New("etcd is away"))), nil
	case 4:
		return apitest.Response(nil, apierrors.NewUnauthorized("expired")), nil
	case 5:
		if r.Verb != "list" && r.Verb != "watch" {
			return apitest.Response(nil, apierrors.NewForbidden(v1.Resource("pods"), r.Name, errors.New("no"))), nil
		}
	case 7: // only the watch is late
		if r.Verb == "list" || r.Verb == "watch" {
			return nil, errors.New("connection refused")
		}
	}
	return nil, nil
}

// after loses the response of a request that the server has handled, and checks the result.
func (m *model) after(r *apitest.Request) error {
	if pod := m.api.Get(r.Namespace, r.Name); r.Verb == "patch" && pod != nil {
		m.mu.Lock()
		last := m.phases[pod.UID]
		m.phases[pod.UID] = pod.Status.Phase
		m.mu.Unlock()
		if (last == v1.PodSucceeded || last == v1.PodFailed) && pod.Status.Phase != last {
			m.violated("the phase of %s (%s) went from %s to %s", pod.Name, pod.UID, last, pod.Status.Phase)
		}
		whose := string(pod.UID)
		if podspec.IsMirror(pod) {
			whose = pod.Annotations[podspec.AnnotationConfigMirror]
		}
		if pod.Status.HostIP != "" && pod.Status.HostIP != whose {
			m.violated("pod %s (%s) has the status of %s", pod.Name, whose, pod.Status.HostIP)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault == 6 && r.Verb != "watch" {
		return errors.New("connection reset")
	}
	return nil
}

// checkDelete: only the pods are deleted that have ended, and only by UID.
func (m *model) checkDelete(r *apitest.Request) {
	opts := &metav1.DeleteOptions{}
	if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(r.Body, nil, opts); err != nil ||
		opts.Preconditions == nil || opts.Preconditions.UID == nil {
		m.violated("deletion without a precondition: %v", err)
		return
	}
	pod := m.api.Get(r.Namespace, r.Name)
	if pod == nil || pod.UID != *opts.Preconditions.UID || podspec.IsMirror(pod) {
		return
	}
	if !m.opts.Ended(pod.UID) {
		m.violated("pod %s (%s) was deleted while it runs", pod.Name, pod.UID)
	}
	if pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
		m.violated("pod %s (%s) was deleted in phase %q", pod.Name, pod.UID, pod.Status.Phase)
	}
}

// start starts source, sink and status manager, as an agent does.
func (m *model) start() {
	m.restart()
	// A new agent generates the status of each pod that it has.
	for _, p := range m.pods {
		m.set(p)
	}
	for _, p := range m.statics {
		m.set(p)
	}
}

func (m *model) set(p *modelPod) {
	m.store.Set(p.pod, p.status())
	if p.over {
		m.store.Terminate(p.pod)
	}
}

func (m *model) finish(p *modelPod) {
	p.over, p.ready = true, false
	m.end(p.pod.UID)
	m.set(p)
}

// agent does what the agent does about the pods that the source has.
func (m *model) agent() {
	if !m.src.Synced() {
		return
	}
	here := map[types.UID]bool{}
	for _, pod := range m.src.Pods() {
		if podspec.IsMirror(pod) {
			continue
		}
		here[pod.UID] = true
		p := m.pods[pod.UID]
		if p == nil {
			p = &modelPod{pod: pod}
			m.pods[pod.UID] = p
			m.set(p)
		}
		p.pod = pod
		if final := pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded; final && !p.over {
			m.finish(p)
		}
	}
	for uid, p := range m.pods {
		if !here[uid] { // removed by force
			m.end(uid)
			m.store.Terminate(p.pod)
			m.store.PodEnded(runtime.RefOf(p.pod))
			delete(m.pods, uid)
		}
	}
}

// play plays the script. Each step is an operation and an argument.
func (m *model) play(script []byte) {
	names := []string{"a", "b"}
	for i := 0; i+1 < len(script); i += 2 {
		arg := int(script[i+1])
		name := names[arg%2]
		var live *modelPod
		for _, p := range m.pods {
			if p.pod.Name == name && !p.over && (live == nil || p.pod.UID > live.pod.UID) {
				live = p
			}
		}
		switch script[i] % 16 {
		case 0:
			if m.api.Get("default", name) == nil {
				m.api.Create(apiPod(name))
			}
		case 1, 2:
			if live != nil {
				live.ready = !live.ready
				m.set(live)
			}
		case 3:
			if live != nil {
				m.finish(live)
			}
		case 4:
			m.api.Delete("default", name, nil)
		case 5:
			m.api.Delete("default", name, ptr.To[int64](0))
		case 6:
			m.writeForeign(name)
		case 7:
			m.api.Update("default", name, func(pod *v1.Pod) { // overwrite what is ours
				pod.Status.Conditions = slices.DeleteFunc(pod.Status.Conditions,
					func(c v1.PodCondition) bool { return c.Type == v1.PodReady })
				if arg%8 > 5 && pod.Status.Phase != v1.PodSucceeded {
					pod.Status.Phase = v1.PodFailed
				}
			})
		case 8:
			m.mu.Lock()
			m.fault = arg % 8
			m.mu.Unlock()
			if arg >= 128 || m.fault == 7 {
				m.api.BreakWatches()
			}
		case 9:
			m.start()
		case 10:
			m.setStatic(arg)
		case 11:
			m.api.Update("default", name, func(pod *v1.Pod) {
				if pod.Finalizers = nil; arg%4 > 1 {
					pod.Finalizers = []string{"example.com/keep"}
				}
			})
		case 12:
			if arg%2 == 0 {
				m.api.Compact()
			}
			m.api.BreakWatches()
		case 13:
			grace := ptr.To[int64](0)
			if arg%2 == 0 {
				grace = nil
			}
			m.api.Delete("default", "s", grace)
		case 14: // recreated, and the agent does not know it yet
			if m.api.Delete("default", name, ptr.To[int64](0)); m.api.Get("default", name) == nil {
				m.api.Create(apiPod(name))
			}
			if live != nil {
				live.ready = !live.ready
				m.set(live)
			}
		default:
			time.Sleep(time.Duration(arg) * 50 * time.Millisecond)
		}
		synctest.Wait()
		m.agent()
	}
}

func (m *model) writeForeign(name string) {
	m.counter++
	value := fmt.Sprint(m.counter)
	m.api.Update("default", name, func(pod *v1.Pod) {
		c := v1.PodCondition{Type: foreign, Status: v1.ConditionTrue, Message: value}
		pod.Status.Conditions = append(slices.DeleteFunc(pod.Status.Conditions,
			func(c v1.PodCondition) bool { return c.Type == foreign }), c)
		m.mu.Lock()
		m.conditions[pod.UID] = value
		m.mu.Unlock()
	})
}

// setStatic adds, changes or removes the static pod.
func (m *model) setStatic(arg int) {
	if old := m.statics["s"]; old != nil {
		m.rig.mu.Lock()
		delete(m.static, "s")
		m.rig.mu.Unlock()
		delete(m.statics, "s")
		m.store.Terminate(old.pod)
		m.store.PodEnded(runtime.RefOf(old.pod))
	}
	if arg%3 > 0 {
		m.counter++
		p := &modelPod{pod: staticPod("s", types.UID(fmt.Sprint("hash-", m.counter))), ready: true}
		m.statics["s"] = p
		m.rig.mu.Lock()
		m.static["s"] = true
		m.rig.mu.Unlock()
		m.set(p)
	}
}

// settled returns what is wrong when all is quiet.
func (m *model) settled() error {
	m.mu.Lock()
	m.fault = 0
	m.mu.Unlock()
	settle := func() {
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		m.agent()
	}
	settle()
	for _, p := range m.pods { // what is to be deleted ends
		if pod := m.api.Get(p.pod.Namespace, p.pod.Name); !p.over && pod != nil && pod.UID == p.pod.UID &&
			pod.DeletionTimestamp != nil {
			m.finish(p)
		}
	}
	settle()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken != nil {
		return m.broken
	}
	m.api.Requests()
	for _, p := range m.pods {
		if err := m.checkPod(p); err != nil {
			return err
		}
	}
	if err := m.checkMirror(); err != nil {
		return err
	}
	m.mu.Unlock()
	time.Sleep(time.Hour)
	synctest.Wait()
	m.mu.Lock()
	if requests := m.api.Requests(); len(requests) > 0 {
		return fmt.Errorf("there are requests although nothing happens: %s", strings.Join(requests, ", "))
	}
	return nil
}

func (m *model) checkPod(p *modelPod) error {
	pod := m.api.Get(p.pod.Namespace, p.pod.Name)
	if pod == nil || pod.UID != p.pod.UID {
		return fmt.Errorf("the agent has pod %s (%s), which does not exist", p.pod.Name, p.pod.UID)
	}
	if pod.DeletionTimestamp != nil && len(pod.Finalizers) == 0 {
		return fmt.Errorf("pod %s (%s) has ended and still exists", pod.Name, pod.UID)
	}
	want, _ := m.store.Get(pod.UID)
	if pod.Status.Phase != want.Phase && pod.Status.Phase != v1.PodFailed {
		return fmt.Errorf("pod %s (%s) is %s, want %s", pod.Name, pod.UID, pod.Status.Phase, want.Phase)
	}
	ready := condition(pod, v1.PodReady)
	if ready == nil || (ready.Status == v1.ConditionTrue) != p.ready {
		return fmt.Errorf("pod %s (%s) has the condition %v, want ready %v", pod.Name, pod.UID, ready, p.ready)
	}
	if pod.Status.HostIP != string(pod.UID) {
		return fmt.Errorf("pod %s (%s) has the status of %q", pod.Name, pod.UID, pod.Status.HostIP)
	}
	if c := condition(pod, foreign); m.conditions[pod.UID] != "" && (c == nil || c.Message != m.conditions[pod.UID]) {
		return fmt.Errorf("pod %s (%s): the foreign condition is %v, want %s", pod.Name, pod.UID, c,
			m.conditions[pod.UID])
	}
	return nil
}

func (m *model) checkMirror() error {
	mirror, static := m.api.Get("default", "s"), m.statics["s"]
	switch {
	case mirror == nil && static == nil:
		return nil
	case mirror == nil:
		return errors.New("the static pod has no mirror pod")
	case static == nil:
		return errors.New("the mirror pod has no static pod")
	case mirror.Annotations[podspec.AnnotationConfigMirror] != string(static.pod.UID):
		return errors.New("the mirror pod is of another static pod")
	case mirror.Status.HostIP != string(static.pod.UID):
		return fmt.Errorf("the mirror pod has the status of %q", mirror.Status.HostIP)
	}
	return nil
}

func playModel(t *testing.T, script []byte) (err error) {
	synctest.Test(t, func(t *testing.T) {
		m := &model{
			rig: newRig(t), pods: map[types.UID]*modelPod{}, statics: map[string]*modelPod{},
			conditions: map[types.UID]string{}, phases: map[types.UID]v1.PodPhase{},
		}
		m.start()
		m.api.Before(m.before)
		m.api.After(m.after)
		m.play(script)
		err = m.settled()
		m.stop()
	})
	return err
}

// The last status of each pod arrives, whatever fails, restarts and interferes; foreign
// conditions survive; no pod has the status of another one; no phase goes back; a pod is deleted
// after its end only; and when nothing happens there are no calls.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		if err := playModel(t, rapid.SliceOfN(rapid.Byte(), 0, 120).Draw(rt, "script")); err != nil {
			rt.Fatal(err)
		}
	})
}
