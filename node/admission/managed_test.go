package admission_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/lifecycle"
	"github.com/kubeletkit/kubeletkit/node/admission"
)

// What a component gives is not compared with the node object, which is behind: after a restart of the agent it has no
// devices.
func TestManaged(t *testing.T) {
	managed := map[v1.ResourceName]bool{"example.com/gpu": true, "memory": true}
	a, err := admission.New(admission.Options{
		Node:    func() admission.Node { return admission.Node{Node: node(), Confirmed: true} },
		Managed: func(name v1.ResourceName) bool { return managed[name] },
	})
	require.NoError(t, err)
	admit := func(requests v1.ResourceList) error {
		_, err := a.Admit(lifecycle.AdmitRequest{Pod: pod("p", requests)})
		return err
	}
	require.NoError(t, admit(list("example.com/gpu", "4")))
	assert.Equal(t, "OutOfmemory", reason(t, admit(list("memory", "2000"))), "only extended resources")
	delete(managed, "example.com/gpu")
	assert.Equal(t, "OutOfexample.com/gpu", reason(t, admit(list("example.com/gpu", "4"))))
}
