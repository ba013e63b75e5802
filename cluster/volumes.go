package cluster

import (
	"context"
	"errors"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/cluster/storage"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// VolumesInUse is a plugin of persistent volumes whose volumes a controller attaches to the node, such as that of
// package csi. It calls lifecycle.Node.NodeStatusChanged when another volume is in use, so that the node object has it
// at once.
type VolumesInUse interface {
	// VolumesInUse returns the volumes, as VolumesInUse of node.Options does. It must not block, and must be safe for
	// concurrent use.
	VolumesInUse() (volumes []v1.UniqueVolumeName, known bool)
}

// volumesInUse returns a function with the volumes of all plugins, which are known if each plugin knows them; nil if no
// plugin is a [VolumesInUse].
func volumesInUse(plugins []volume.PersistentPlugin) func() ([]v1.UniqueVolumeName, bool) {
	var users []VolumesInUse
	for _, plugin := range plugins {
		if user, ok := runtime.Optional[VolumesInUse](plugin); ok {
			users = append(users, user)
		}
	}
	if users == nil {
		return nil
	}
	return func() (volumes []v1.UniqueVolumeName, known bool) {
		for _, user := range users {
			some, known := user.VolumesInUse()
			if !known {
				return nil, false
			}
			volumes = append(volumes, some...)
		}
		return volumes, true
	}
}

func (n *Node) buildStorage() (err error) {
	n.storage, err = storage.New(n.clients.objects, n.config.NodeName, podTokens{n}, storage.Options{
		Checkpoint: states{n}, Sync: n.sync, Logger: n.named("storage"),
	})
	return err
}

// Storage has what volumes of CSI drivers need of the cluster, for package node/volume/csi. It may be given to a plugin
// before Configure. It works while the agent runs, if Config.CSI is set.
func (n *Node) Storage() *storage.Storage { return n.storage }

// podTokens are the service account tokens of the node, which exist after Configure.
type podTokens struct{ node *Node }

// Token implements [storage.Tokens].
func (t podTokens) Token(ctx context.Context, namespace, serviceAccount string,
	request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	if t.node.tokens == nil {
		return nil, errors.New("the node is not configured yet")
	}
	return t.node.tokens.Token(ctx, namespace, serviceAccount, request)
}

// states is the checkpoint of the agent, which is known after Configure.
type states struct{ node *Node }

var _ runtime.States = states{}

// KeepState implements [runtime.States].
func (s states) KeepState(name string, state any) {
	if s.node.states != nil {
		s.node.states.KeepState(name, state)
	}
}

// LoadState implements [runtime.States].
func (s states) LoadState(name string, into any) bool {
	return s.node.states != nil && s.node.states.LoadState(name, into)
}
