package server

import (
	"context"
	"encoding/json"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
