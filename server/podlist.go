package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// maxLists is the number of encoded lists of pods in memory. More only slow clients need:
// they get the newest of these, which is then as old as its slowest client.
const maxLists = 4

// podLists encodes the list of pods. Requests at the same time share an encoding, which
// begins after they have arrived.
type podLists struct {
	agent Agent
	// running is held while a list is encoded.
	running sync.Mutex

	mu sync.Mutex
	// next is not begun yet, nil if no request waits for it. newest is the last list that
	// was encoded, nil if no request uses it.
	next, newest *podList
	// inMemory is the number of lists that requests use.
	inMemory int
}

// podList is an encoded list.
type podList struct {
	ready chan struct{} // closed when data and err are valid
	data  []byte
	err   error
	users int // guarded by podLists.mu
}

// get returns a list. The caller calls release when it does not need it any more, also
// after an error, which is that of ctx.
func (p *podLists) get(ctx context.Context) (*podList, error) {
	p.mu.Lock()
	l := p.next
	if l == nil && p.inMemory >= maxLists {
		l = p.newest
	}
	if l != nil {
		l.users++
		p.mu.Unlock()
		select {
		case <-l.ready:
			return l, nil
		case <-ctx.Done():
			return l, ctx.Err()
		}
	}
	l = &podList{ready: make(chan struct{}), users: 1}
	p.next = l
	p.inMemory++
	p.mu.Unlock()
	defer close(l.ready)

	p.running.Lock()
	defer p.running.Unlock()
	p.mu.Lock()
	p.next = nil // from here on changes may come too late for this list
	p.mu.Unlock()
	l.data, l.err = encodePods(p.agent.Pods())
	p.mu.Lock()
	p.newest = l
	p.mu.Unlock()
	return l, nil
}

func (p *podLists) release(l *podList) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	p.inMemory--
	if p.newest == l {
		p.newest = nil
	}
}

func encodePods(pods []*v1.Pod) ([]byte, error) {
	list := v1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: make([]v1.Pod, 0, len(pods))}
	for _, pod := range pods {
		list.Items = append(list.Items, *pod)
	}
	data, err := json.Marshal(list)
	return append(data, '\n'), err
}

// Pods returns a handler of /pods: a v1.PodList of the pods of the agent with their status. Requests
// at the same time share one encoding.
func Pods(agent Agent, log logr.Logger) http.Handler {
	lists := &podLists{agent: agent}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		l, err := lists.get(req.Context())
		defer lists.release(l)
		if err == nil {
			err = l.err
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// The list stays in memory until then, so that even a trusted client must not pause.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(l.data))) // so that it is one write
		if _, err := w.Write(l.data); err != nil {
			log.V(1).Info("The client of /pods disconnected", "reason", err.Error())
		}
	})
}

func addPods(mux *routes, agent Agent, opts Options) {
	pods := Pods(agent, opts.Logger)
	mux.handle("GET /pods", pods)
	mux.handle("GET /pods/{$}", pods)
}

// RunningPods returns a handler of /runningpods: a v1.PodList of the pods of which something runs,
// as the runtime lists them. list is ListPods of a runtime. Of a pod it has the name, the
// namespace, the UID, and the names of the containers that run.
func RunningPods(list func(context.Context) ([]*runtime.Pod, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		found, err := list(req.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		var pods []*v1.Pod
		for _, p := range found {
			if !p.Running() {
				continue
			}
			pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace, UID: p.UID}}
			for _, c := range p.Containers {
				if c.State == runtime.ContainerRunning {
					pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: c.Name})
				}
			}
			pods = append(pods, pod)
		}
		data, err := encodePods(pods)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(data)
	})
}
