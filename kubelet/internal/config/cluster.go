package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/cluster/credentials"
	"github.com/kubeletkit/kubeletkit/cluster/node"
	"github.com/kubeletkit/kubeletkit/runtime"
)

// clusterFlags and clusterFields have an effect only with --kubeconfig.
const (
	clusterFlags = `bootstrap-kubeconfig cert-dir cloud-provider enable-controller-attach-detach event-burst event-qps
		kube-api-burst kube-api-content-type kube-api-qps make-iptables-util-chains node-labels node-status-max-images node-status-update-frequency provider-id register-node
		register-with-taints rotate-certificates`
	clusterFields = `contentType enableControllerAttachDetach eventBurst eventRecordQPS kubeAPIBurst kubeAPIQPS makeIPTablesUtilChains nodeLeaseDurationSeconds
		nodeStatusMaxImages nodeStatusReportFrequency nodeStatusUpdateFrequency providerID registerNode registerWithTaints
		rotateCertificates serverTLSBootstrap`
)

// controllerAttachField has an effect only with volume plugins of the program.
const controllerAttachField = "enableControllerAttachDetach"

// Cluster are the flags of the API server that have no field in the configuration file.
type Cluster struct {
	// Kubeconfig is "" for an agent that is no node of a cluster.
	Kubeconfig          string
	BootstrapKubeconfig string
	CertDir             string
	CloudProvider       string
	NodeLabels          map[string]string
}

// addClusterFlags binds the flags of a node of a cluster.
func (s *Settings) addClusterFlags(fs *pflag.FlagSet) {
	fs.StringVar(&s.Kubeconfig, "kubeconfig", "", "file with the API server of the cluster that this agent is a "+
		"node of, and its credentials (default: none; the agent is no node of a cluster)")
	fs.StringVar(&s.BootstrapKubeconfig, "bootstrap-kubeconfig", "",
		"kubeconfig for requesting a client certificate, while there is no valid one; --kubeconfig is then written")
	fs.StringVar(&s.CertDir, "cert-dir", "", "directory of the certificates that the agent requests (default for "+
		"root with a container runtime: "+kubeletDir+"/pki, as with kubelet whatever --root-dir is; otherwise pki in "+
		"the root directory)")
	fs.BoolVar(&s.RotateCertificates, "rotate-certificates", s.RotateCertificates,
		"request a new client certificate when the current one is about to expire")
	fs.StringVar(&s.CloudProvider, "cloud-provider", "", "external if a cloud provider initializes the node")
	fs.Var((*labelMap)(&s.NodeLabels), "node-labels", "labels of the node when it is registered, as in a=b,c=d")
	fs.BoolVar(s.RegisterNode, "register-node", *s.RegisterNode, "create the node object")
	fs.Var((*taintList)(&s.RegisterWithTaints), "register-with-taints",
		"taints of the node when it is registered, as in key=value:NoSchedule,key:NoExecute")
	fs.StringVar(&s.ProviderID, "provider-id", s.ProviderID, "the node's ID at the cloud provider")
	fs.BoolVar(s.EnableControllerAttachDetach, "enable-controller-attach-detach", *s.EnableControllerAttachDetach,
		"let the controllers of the cluster attach the volumes of the program's volume plugins; without one it has no "+
			"effect")
	fs.DurationVar(&s.NodeStatusUpdateFrequency.Duration, "node-status-update-frequency",
		s.NodeStatusUpdateFrequency.Duration, "time between two looks at the status of the node")
	fs.Int32Var(s.NodeStatusMaxImages, "node-status-max-images", *s.NodeStatusMaxImages,
		"images in the status of the node; -1 for all")
	fs.BoolVar(s.MakeIPTablesUtilChains, "make-iptables-util-chains", *s.MakeIPTablesUtilChains,
		"make the chains by which other programs choose between iptables-legacy and iptables-nft")
	fs.StringVar(&s.ContentType, "kube-api-content-type", s.ContentType, "media type of requests to the API server")
	fs.Int32Var(s.KubeAPIQPS, "kube-api-qps", *s.KubeAPIQPS, "requests a second to the API server, apart from "+
		"events and the node; 0 for 5")
	fs.Int32Var(&s.KubeAPIBurst, "kube-api-burst", s.KubeAPIBurst, "requests at once")
	fs.Int32Var(s.EventRecordQPS, "event-qps", *s.EventRecordQPS, "events a second; 0 for no limit")
	fs.Int32Var(&s.EventBurst, "event-burst", s.EventBurst, "events at once")
	fs.BoolVar(s.LocalStorageCapacityIsolation, "local-storage-capacity-isolation", *s.LocalStorageCapacityIsolation,
		"report the capacity of ephemeral storage, and evict pods that exceed a limit of it or of an emptyDir volume")
}

// clusterDefaults are kubelet's.
func clusterDefaults(c *KubeletConfiguration) {
	if c.NodeStatusUpdateFrequency.Duration == 0 { // else that of reports follows it
		def(&c.NodeStatusReportFrequency.Duration, 5*time.Minute)
	}
	def(&c.NodeStatusUpdateFrequency.Duration, 10*time.Second)
	def(&c.NodeStatusReportFrequency.Duration, c.NodeStatusUpdateFrequency.Duration)
	def(&c.NodeLeaseDurationSeconds, 40)
	def(&c.NodeStatusMaxImages, ptr.To[int32](50))
	def(&c.RegisterNode, ptr.To(true))
	def(&c.EnableControllerAttachDetach, ptr.To(true))
	def(&c.LocalStorageCapacityIsolation, ptr.To(true))
	def(&c.MakeIPTablesUtilChains, ptr.To(true))
	def(&c.ContentType, kruntime.ContentTypeProtobuf)
	def(&c.KubeAPIQPS, ptr.To[int32](50))
	def(&c.KubeAPIBurst, 100)
	def(&c.EventRecordQPS, ptr.To[int32](50))
	def(&c.EventBurst, 100)
}

// validateCluster returns what is wrong with the settings of a node of a cluster.
func (s *Settings) validateCluster() (errs []error) {
	for field, n := range map[string]int32{
		"kubeAPIQPS": *s.KubeAPIQPS, "kubeAPIBurst": s.KubeAPIBurst, "eventRecordQPS": *s.EventRecordQPS,
		"eventBurst": s.EventBurst, "nodeStatusMaxImages": *s.NodeStatusMaxImages + 1,
	} {
		if n < 0 {
			errs = append(errs, fmt.Errorf("%s: must not be negative", field))
		}
	}
	if t := s.ContentType; t != kruntime.ContentTypeProtobuf && t != kruntime.ContentTypeJSON {
		errs = append(errs, fmt.Errorf("contentType %q: must be %s or %s", t, kruntime.ContentTypeProtobuf,
			kruntime.ContentTypeJSON))
	}
	if s.NodeLeaseDurationSeconds <= 0 {
		errs = append(errs, fmt.Errorf("nodeLeaseDurationSeconds %d: must be above 0", s.NodeLeaseDurationSeconds))
	}
	for field, d := range map[string]time.Duration{"nodeStatusUpdateFrequency": s.NodeStatusUpdateFrequency.Duration,
		"nodeStatusReportFrequency": s.NodeStatusReportFrequency.Duration} {
		if d <= 0 {
			errs = append(errs, fmt.Errorf("%s %s: must be above 0", field, d))
		}
	}
	if s.CloudProvider != "" && s.CloudProvider != "external" {
		errs = append(errs, fmt.Errorf("--cloud-provider %q: must be external or empty", s.CloudProvider))
	}
	if s.BootstrapKubeconfig != "" && s.Kubeconfig == "" {
		errs = append(errs, errors.New("--bootstrap-kubeconfig: give the file to write with --kubeconfig"))
	}
	for _, err := range node.ValidateLabels(s.NodeLabels) {
		errs = append(errs, fmt.Errorf("--node-labels: %w", err))
	}
	for _, taint := range s.RegisterWithTaints {
		if err := validTaint(taint); err != nil {
			errs = append(errs, fmt.Errorf("registerWithTaints: %w", err))
		}
	}
	if _, err := s.NodeIPs(); err != nil {
		errs = append(errs, err)
	}
	if _, err := s.Thresholds(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

// NodeIPs returns the addresses of --node-ip. A single 0.0.0.0 or :: only selects the preferred
// family.
func (s *Settings) NodeIPs() ([]net.IP, error) {
	if s.NodeIP == "" {
		return nil, nil
	}
	var ips []net.IP
	for text := range strings.SplitSeq(s.NodeIP, ",") {
		ip := net.ParseIP(strings.TrimSpace(text))
		if ip == nil {
			return nil, fmt.Errorf("--node-ip %q: not an IP address", text)
		}
		ips = append(ips, ip)
	}
	isIPv4 := func(ip net.IP) bool { return ip.To4() != nil }
	if len(ips) > 2 || len(ips) == 2 && (isIPv4(ips[0]) == isIPv4(ips[1]) || ips[0].IsUnspecified() ||
		ips[1].IsUnspecified()) {
		return nil, fmt.Errorf("--node-ip %q: must be one address, or two of different families", s.NodeIP)
	}
	return ips, nil
}

// CredentialsOptions returns the options of the credentials.
func (s *Settings) CredentialsOptions() credentials.Options {
	return credentials.Options{Kubeconfig: s.Kubeconfig, BootstrapKubeconfig: s.BootstrapKubeconfig, CertDir: s.CertDir,
		Rotate: s.RotateCertificates}
}

// MachineOptions returns the options of what the node object has of the machine.
func (s *Settings) MachineOptions() node.MachineOptions {
	opts := node.MachineOptions{MaxPods: int(s.MaxPods), PodsPerCore: int(s.PodsPerCore),
		UserNamespace: s.InUserNamespace()}
	if opts.MaxPods == 0 { // a machine has 110 by default
		opts.MaxPods = -1
	}
	if *s.LocalStorageCapacityIsolation {
		opts.StorageDir = s.RootDir
	}
	return opts
}

// NodeOptions returns the options of the node object. They lack what comes from the agent.
func (s *Settings) NodeOptions() (node.Options, error) {
	name, err := s.NodeName()
	if err != nil {
		return node.Options{}, err
	}
	ips, err := s.NodeIPs()
	if err != nil {
		return node.Options{}, err
	}
	reserved, err := s.Reserved()
	if err != nil {
		return node.Options{}, err
	}
	external := s.CloudProvider == "external"
	opts := node.Options{
		Instance:              s.RootDir,
		Labels:                s.NodeLabels,
		Taints:                s.RegisterWithTaints,
		ProviderID:            s.ProviderID,
		NoRegister:            !*s.RegisterNode,
		GetOnExistsOnly:       s.gateOn("KubeletRegistrationGetOnExistsOnly"),
		NoControllerAttach:    !*s.EnableControllerAttachDetach,
		ExternalCloudProvider: external,
		Info:                  node.NewMachine(s.MachineOptions()),
		Addresses:             &node.HostAddresses{Hostname: name, IPs: ips, WaitForProvider: external},
		RequireStorage:        *s.LocalStorageCapacityIsolation,
		Reserved:              reserved,
		EvictionHard:          s.EvictionHard,
		UpdateFrequency:       s.NodeStatusUpdateFrequency.Duration,
		ReportFrequency:       s.NodeStatusReportFrequency.Duration,
		LeaseDuration:         time.Duration(s.NodeLeaseDurationSeconds) * time.Second,
	}
	if *s.EnableServer {
		opts.Port = s.Port
	}
	if *s.NodeStatusMaxImages == 0 {
		opts.Images = noImages{}
	}
	if external && len(ips) > 0 && !ips[0].IsUnspecified() {
		opts.ProvidedIP = s.NodeIP
	}
	return opts, nil
}

// DeclaredFeatures returns the features that the node declares (KEP-5328). podCgroups means that pods have cgroups that
// hold their own limits, and rt is what the runtime has reported.
func (s *Settings) DeclaredFeatures(podCgroups bool, rt runtime.Features) []string {
	features := []string{
		"InPlacePodVerticalScalingInitContainers", // see TestResizeOfInitContainers of runtime/cri
		"RestartAllContainersOnContainerExits",    // see TestRestartAllContainers of runtime/cri
	}
	if podCgroups && s.PodLevelResources() && s.gateOn(podResizeGate) {
		features = append(features, podResizeGate) // see TestResizeOfThePodAsAWhole of node/cgroup
	}
	if s.gateOn(volumesGate) {
		features = append(features, volumesGate) // see TestMemoryResizer of node/volume
	}
	if s.gateOn(mountOptionsGate) && rt.MountOptions {
		features = append(features, mountOptionsGate) // see TestMountOptions of runtime/cri
	}
	if s.SkipsDriverCalls() && !s.Embedded {
		features = append(features, skipsGate) // see TestSkippedOperations of node/dra
	}
	if *s.EnableServer && *s.EnableDebuggingHandlers {
		features = append(features, "ExtendWebSocketsToKubelet") // see package server/streams
	}
	return features
}

// noImages is a [node.Images] without images.
type noImages struct{}

func (noImages) NodeImages(context.Context) ([]v1.ContainerImage, error) { return nil, nil }

// warnCluster adds a warning for what has an effect only in a cluster, and for what does less
// than in kubelet.
func (s *Settings) warnCluster(fs *pflag.FlagSet, fields []string) {
	if s.Kubeconfig == "" {
		var given []string
		for name := range strings.FieldsSeq(clusterFlags) {
			if fs.Changed(name) {
				given = append(given, "--"+name)
			}
		}
		for _, name := range fields {
			if slices.Contains(strings.Fields(clusterFields), name) && !slices.Contains(given, name) {
				given = append(given, name)
			}
		}
		if len(given) > 0 {
			s.less(strings.Join(given, ", ")+": no effect without --kubeconfig", given...)
		}
		return
	}
	const field, flag = controllerAttachField, "enable-controller-attach-detach"
	if !s.attachesVolumes() && (slices.Contains(fields, field) || fs.Changed(flag)) {
		s.less(field+": no effect: no volume plugin has volumes that are attached to the node", field, "--"+flag)
	}
}

// attachesVolumes reports whether a controller may attach volumes to the node. The embedded runtime has no volumes of
// CSI drivers.
func (s *Settings) attachesVolumes() bool {
	return s.program.VolumePlugins || s.program.Storage && !s.Embedded
}

// clusterPaths makes the paths absolute.
func (s *Settings) clusterPaths() []*string {
	return []*string{&s.Kubeconfig, &s.BootstrapKubeconfig, &s.CertDir, &s.TLSCertFile, &s.TLSPrivateKeyFile,
		&s.TokenAuthFile, &s.RBACFile, &s.Authentication.X509.ClientCAFile}
}

// labelMap is a flag of labels. A flag that is given again replaces single labels.
type labelMap map[string]string

func (m *labelMap) String() string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(*m)) {
		out = append(out, key+"="+(*m)[key])
	}
	return strings.Join(out, ",")
}

// Set implements [pflag.Value].
func (m *labelMap) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=") // kubelet: a label without a value is empty
		if *m == nil {
			*m = labelMap{}
		}
		(*m)[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return nil
}

// Type implements [pflag.Value].
func (*labelMap) Type() string { return "key=value,..." }

// taintList is a flag of taints. It replaces those of the file, and each flag those before.
type taintList []v1.Taint

func (l *taintList) String() string {
	var out []string
	for _, t := range *l {
		out = append(out, t.ToString())
	}
	return strings.Join(out, ",")
}

// Set implements [pflag.Value].
func (l *taintList) Set(text string) error {
	var list taintList
	for part := range strings.SplitSeq(text, ",") {
		if part == "" {
			continue
		}
		rest, effect, _ := strings.Cut(part, ":")
		key, value, _ := strings.Cut(rest, "=")
		taint := v1.Taint{Key: key, Value: value, Effect: v1.TaintEffect(effect)}
		if err := validTaint(taint); err != nil {
			return err
		}
		if slices.ContainsFunc(list, func(t v1.Taint) bool { return t.MatchTaint(&taint) }) {
			return fmt.Errorf("taint %s: there is another one with this key and effect", part)
		}
		list = append(list, taint)
	}
	*l = list
	return nil
}

// Type implements [pflag.Value].
func (*taintList) Type() string { return "key=value:effect,..." }

func validTaint(t v1.Taint) error {
	var problems []string
	problems = append(problems, validation.IsQualifiedName(t.Key)...)
	problems = append(problems, validation.IsValidLabelValue(t.Value)...)
	switch t.Effect {
	case v1.TaintEffectNoSchedule, v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute:
	default:
		problems = append(problems, "the effect must be NoSchedule, PreferNoSchedule or NoExecute")
	}
	if len(problems) > 0 {
		return fmt.Errorf("taint %s: %s", t.ToString(), strings.Join(problems, "; "))
	}
	return nil
}
