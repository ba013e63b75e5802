package fake_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/testpod"
	"github.com/kubeletkit/kubeletkit/podconfig"
	"github.com/kubeletkit/kubeletkit/podconfig/fake"
	"github.com/kubeletkit/kubeletkit/runtime"
)

func TestSink(t *testing.T) {
	pod := func(uid types.UID, name string) *v1.Pod { return testpod.New(name, testpod.UID(uid)) }
	var lines []string
	s := fake.NewSink("node", func(pods []*v1.Pod) {
		line := ""
		for _, p := range pods {
			if p != nil {
				line += p.Name + string(p.UID) + " "
			}
		}
		lines = append(lines, line)
	})
	assert.Equal(t, "node", s.NodeName())
	s.Apply(podconfig.Delta{Update: []*v1.Pod{pod("0", "early")}})
	assert.Empty(t, lines, "there was no snapshot")
	s.Set([]*v1.Pod{pod("1", "a"), pod("2", "b"), nil})
	s.Apply(podconfig.Delta{Update: []*v1.Pod{pod("3", "c"), pod("1", "z"), nil}})
	s.Apply(podconfig.Delta{Remove: []types.UID{"2", "9"}})
	s.Apply(podconfig.Delta{Update: []*v1.Pod{pod("4", "c")}})
	assert.Equal(t, []string{"a1 b2 ", "z1 b2 c3 ", "z1 c3 ", "z1 c4 "}, lines)

	restored, broken := pod("5", "r"), errors.New("broken")
	s.Restore(restored)
	assert.Equal(t, []*v1.Pod{restored}, s.Restored())
	s.Reject(runtime.PodRef{Name: "x"}, broken)
	assert.Equal(t, []fake.Rejection{{Pod: runtime.PodRef{Name: "x"}, Err: broken}}, s.Rejected())
	fake.NewSink("", nil).Set(nil)
}
