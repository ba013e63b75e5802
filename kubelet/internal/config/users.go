package config

import (
	"fmt"

	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/node/users"
)

// IDsPerPod returns the number of user IDs of a pod with hostUsers: false.
func (s *Settings) IDsPerPod() int64 {
	if s.UserNamespaces == nil {
		return users.Unit
	}
	return ptr.Deref(s.UserNamespaces.IDsPerPod, users.Unit)
}

// validateUsers judges as kubelet does; one with more IDs than half of all ends when it starts.
func (s *Settings) validateUsers() error {
	if n := s.IDsPerPod(); n < users.Unit || n%users.Unit != 0 || n > 1<<31 {
		return fmt.Errorf("userNamespaces.idsPerPod %d: must be a multiple of %d, up to %d", n,
			users.Unit, int64(1<<31))
	}
	return nil
}
