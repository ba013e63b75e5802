package main

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster"
	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/node/volume"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/fake"
)

// fleet is a number of agents that are nodes of one cluster.
type fleet struct {
	rest *rest.Config
	// ready counts the nodes that are ready.
	ready *counter
}

// newFleet reads the kubeconfig. All agents have its credentials, and share connections.
func newFleet(kubeconfig string, agents int) (*fleet, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %s: %w", kubeconfig, err)
	}
	config.UserAgent = "hollow"
	return &fleet{rest: config, ready: newCounter(agents)}, nil
}

// newAgent returns an agent that is a node of the cluster. Its pods are those that the API
// server has bound to it.
func (f *fleet) newAgent(name, dir string, s settings, sink *counter) (*kubeletkit.Agent, error) {
	rt := fake.New(fake.Options{Calls: -1, Dir: filepath.Join(dir, name), Behavior: func(fake.Container) fake.Behavior {
		return fake.Behavior{RunFor: s.runFor, ExitCode: 1}
	}})
	host := rt.Host()
	host.NodeName, host.Hostname = name, name
	machine := machine{ip: host.IPs[0]}
	member, err := cluster.New(cluster.Config{
		NodeName: name, REST: f.rest,
		Node: node.Options{
			// The directory is another one in each run. So two fleets at once, which take over
			// each other's leases, are not noticed.
			Instance: name, Labels: map[string]string{"hollow": "true"},
			Info: machine, Resources: []node.Resources{machine}, Addresses: machine,
		},
	})
	if err != nil {
		return nil, err
	}
	opts := kubeletkit.Options{
		NodeName: name, RootDir: filepath.Join(dir, name), Host: host, Runtime: rt, StatusSink: sink,
		Override: kubeletkit.Overrides{Volumes: kubeletkit.Replace[volume.Manager](noVolumes{})},
	}
	if err := member.Configure(&opts); err != nil {
		return nil, err
	}
	member.OnChange(func(object *v1.Node) {
		for _, c := range object.Status.Conditions {
			if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
				f.ready.add(object.UID)
			}
		}
	})
	return kubeletkit.New(opts)
}

// machine is what a hollow node reports: the size of a common server.
type machine struct{ ip string }

// NodeInfo implements node.Info.
func (machine) NodeInfo(context.Context) (v1.NodeSystemInfo, error) {
	return v1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", OSImage: "hollow",
		KernelVersion: "hollow"}, nil
}

// NodeResources implements node.Resources.
func (machine) NodeResources(context.Context) (capacity, allocatable v1.ResourceList, err error) {
	return v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("32"), v1.ResourceMemory: resource.MustParse("256Gi"),
		v1.ResourceEphemeralStorage: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("110"),
	}, nil, nil
}

// NodeAddresses implements node.Addresses.
func (m machine) NodeAddresses(context.Context) ([]v1.NodeAddress, error) {
	return []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: m.ip}}, nil
}

// noVolumes is a volume manager that takes any volume and touches no disk: nothing in a hollow
// container reads a file.
type noVolumes struct{ volume.Base }

func (noVolumes) SetUp(_ context.Context, pod *v1.Pod, podDir string) (map[string]runtime.Volume, error) {
	volumes := make(map[string]runtime.Volume, len(pod.Spec.Volumes))
	for i := range pod.Spec.Volumes {
		volumes[pod.Spec.Volumes[i].Name] = runtime.Volume{HostPath: filepath.Join(podDir,
			"volumes", pod.Spec.Volumes[i].Name)}
	}
	return volumes, nil
}

func (noVolumes) SubPath(_ context.Context, req runtime.SubPath) (string, error) {
	return filepath.Join(req.Volume.HostPath, req.Path), nil
}

func (noVolumes) TearDown(context.Context, runtime.PodRef, string) error { return nil }

func (noVolumes) Remove(context.Context, runtime.PodRef, string) error { return nil }
