package csidriver

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/proto"
)

// DefaultName is the name of a driver with no [Options.Name].
const DefaultName = "csi.kubeletkit.example.com"

// Options are what a driver is.
type Options struct {
	// Name is the name of the driver. Default: [DefaultName].
	Name string
	// Version is what GetPluginInfo returns. Default: "1".
	Version string
	// Dir has the volumes and the state of the driver, which makes it. It is required. A second driver must not run in
	// it at the same time.
	Dir string
	// Socket is the path at which the services are served. A socket that is there is replaced. It is required.
	Socket string

	// Registry is the directory in which the socket of the registration is made. Empty: there is no registration.
	Registry string
	// Endpoint is the socket that the registration names. Default: Socket.
	Endpoint string
	// Versions are the versions of CSI that the registration names. Default: 1.0.0.
	Versions []string

	// Control is a socket for tests in other processes, see [Remote]. Empty: there is none.
	Control string
	// KeepCalls keeps the calls in the directory. Then Calls returns those to drivers in it before, too.
	KeepCalls bool

	// Settings are what can change while the driver runs, see [Driver.Update].
	Settings

	// Nodes are the IDs of other nodes to which the controller attaches volumes.
	Nodes []string
	// Links uses symbolic links and plain files also where volumes could be mounted.
	Links bool
	// FileSystem is the type of the file system that is made on the loop device of a volume with access type mount.
	// Only "ext4" is supported. Empty: such a volume is a directory. It needs root, Linux, and mkfs.ext4.
	FileSystem string
	// MaxVolumeBytes is the size of the largest volume. Default: 1 TiB.
	MaxVolumeBytes int64

	// Before is called before the work of each call, concurrently. An error is the answer; it should have a status of
	// gRPC. After is called with the answer. A nil function is not called.
	Before func(method string, request proto.Message) error
	After  func(method string, request, response proto.Message, err error)
}

// Settings are what a driver reports.
type Settings struct {
	// NodeID is the name that the driver has for the node. Default: "node". Update can make it empty.
	NodeID string
	// Topology has the labels of the node. Empty: the driver has no constraints.
	Topology map[string]string
	// MaxVolumes is how many volumes the node can have; 0 is not limited.
	MaxVolumes int64
	// NodeCapabilities and ControllerCapabilities are those of the services. A call that needs another one is answered
	// with Unimplemented, and is a violation. Default if nil: [AllNode] and [AllController].
	NodeCapabilities       []csi.NodeServiceCapability_RPC_Type
	ControllerCapabilities []csi.ControllerServiceCapability_RPC_Type
	// NotReady is what Probe answers.
	NotReady bool
	// Health are the conditions of volumes, by ID, which GET_VOLUME_HEALTH reports.
	Health map[string][]*csi.VolumeHealth_VolumeHealthEntry
	// BackendHealth is what GET_STORAGE_HEALTH reports.
	BackendHealth []*csi.NodeGetStorageHealthResponse_StorageBackendHealth `json:"-"`
}

// AllNode returns all capabilities that the Node service has.
func AllNode() []csi.NodeServiceCapability_RPC_Type {
	return []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP, csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_GET_STORAGE_HEALTH,
	}
}

// AllController returns all capabilities that the Controller service has.
func AllController() []csi.ControllerServiceCapability_RPC_Type {
	return []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME, csi.ControllerServiceCapability_RPC_LIST_VOLUMES,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY, csi.ControllerServiceCapability_RPC_GET_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		csi.ControllerServiceCapability_RPC_PUBLISH_READONLY,
	}
}

// withDefaults returns the options with their defaults, as copies.
func (o Options) withDefaults() (Options, error) {
	var problems []error
	if o.Dir == "" {
		problems = append(problems, errors.New("option Dir is required"))
	}
	if o.Socket == "" {
		problems = append(problems, errors.New("option Socket is required"))
	}
	if o.FileSystem != "" && o.FileSystem != "ext4" {
		problems = append(problems, fmt.Errorf("option FileSystem %q is not supported: ext4", o.FileSystem))
	}
	if o.FileSystem != "" && (o.Links || !canMount()) {
		problems = append(problems, errors.New("option FileSystem needs root on Linux, and no Links"))
	}
	if o.Name == "" {
		o.Name = DefaultName
	}
	if o.Version == "" {
		o.Version = "1"
	}
	if o.Versions == nil {
		o.Versions = []string{"1.0.0"}
	}
	if o.Endpoint == "" {
		o.Endpoint = o.Socket
	}
	if o.NodeID == "" {
		o.NodeID = "node"
	}
	if o.NodeCapabilities == nil {
		o.NodeCapabilities = AllNode()
	}
	if o.ControllerCapabilities == nil {
		o.ControllerCapabilities = AllController()
	}
	if o.MaxVolumeBytes == 0 {
		o.MaxVolumeBytes = 1 << 40
	}
	o.Links = o.Links || !canMount()
	o.Versions, o.Nodes, o.Settings = slices.Clone(o.Versions), slices.Clone(o.Nodes), o.Settings.clone()
	return o, errors.Join(problems...)
}

func (s Settings) clone() Settings {
	s.Topology, s.Health = maps.Clone(s.Topology), maps.Clone(s.Health)
	s.NodeCapabilities = slices.Clone(s.NodeCapabilities)
	s.ControllerCapabilities = slices.Clone(s.ControllerCapabilities)
	s.BackendHealth = slices.Clone(s.BackendHealth)
	return s
}

// node and controller report whether the services have a capability.
func (s Settings) node(c csi.NodeServiceCapability_RPC_Type) bool {
	return slices.Contains(s.NodeCapabilities, c)
}

func (s Settings) controller(c csi.ControllerServiceCapability_RPC_Type) bool {
	return slices.Contains(s.ControllerCapabilities, c)
}

// registration returns the socket of the registration.
func (o Options) registration() string { return filepath.Join(o.Registry, o.Name+"-reg.sock") }
