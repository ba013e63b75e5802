package fake_test

import (
	"context"
	"errors"
	"fmt"
	"sync"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/lifecycle/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// modem gives the only modem of the machine to one pod after the other.
type modem struct {
	node lifecycle.Node

	mu      sync.Mutex
	holder  types.UID
	waiting types.UID
}

func (*modem) Name() string { return "modem" }

func (m *modem) Join(node lifecycle.Node) error {
	m.node = node
	node.AddReadyCheck("modem", func() error { return errors.New("no carrier") })
	return nil
}

func (m *modem) Prepare(_ context.Context, req lifecycle.PrepareRequest) (lifecycle.PrepareResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.holder != "" && m.holder != req.Pod.UID {
		m.waiting = req.Pod.UID
		return lifecycle.PrepareResponse{}, lifecycle.Wait("WaitingForModem", "another pod has the modem")
	}
	m.holder = req.Pod.UID
	m.node.Event(runtime.Event{Pod: runtime.RefOf(req.Pod), Reason: "Modem", Message: "The pod has the modem"})
	return lifecycle.PrepareResponse{}, nil
}

func (m *modem) Ended(_ context.Context, req lifecycle.EndedRequest) error {
	m.mu.Lock()
	waiting := m.waiting
	if m.holder == req.Pod.UID {
		m.holder, m.waiting = "", ""
	}
	m.mu.Unlock()
	m.node.Sync(waiting)
	return nil
}

// A component is tested step by step, without an agent.
func Example() {
	pod := func(name string) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	}
	first, second := pod("first"), pod("second")
	node, m := fake.NewNode(first, second), &modem{}
	if err := m.Join(node); err != nil {
		fmt.Println(err)
	}
	prepare := func(pod *v1.Pod) {
		_, err := m.Prepare(context.Background(), lifecycle.PrepareRequest{Pod: pod})
		fmt.Println(pod.Name, err)
	}
	prepare(first)
	prepare(second)
	fmt.Println(m.Ended(context.Background(), lifecycle.EndedRequest{Pod: first}), "and synced are", node.Syncs())
	prepare(second)
	fmt.Println(len(node.Events()), "events, ready:", node.Ready())
	// Output:
	// first <nil>
	// second WaitingForModem: another pod has the modem
	// <nil> and synced are [second]
	// second <nil>
	// 2 events, ready: no carrier
}
