package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// eventually is how long tests of a node wait for what is to happen. It is generous, since other tests
// use the machine, and a test that passes does not wait for it.
const eventually = 3 * time.Minute

// nodeSuite is a control plane with one node, which many tests share: each has a namespace
// of its own.
type nodeSuite struct {
	*Cluster
	plane *ControlPlane
	agent *Agent

	mu      sync.Mutex
	created map[string]*v1.Pod // by namespace and name
}

// newNodeSuite makes a control plane and an agent that is not started.
func newNodeSuite(t *testing.T, options AgentOptions) *nodeSuite {
	t.Helper()
	return newNodeSuiteOn(t, NewCluster(t), options)
}

// newNodeSuiteOn is newNodeSuite on a cluster.
func newNodeSuiteOn(t *testing.T, c *Cluster, options AgentOptions) *nodeSuite {
	t.Helper()
	s := &nodeSuite{Cluster: c, plane: NewControlPlane(t, c.Net)}
	c.Preload(t, "pause:1", "busybox:1", "busybox:2")
	if options.Kubeconfig == "" {
		options.Kubeconfig = s.plane.NodeKubeconfig(t, NodeName)
	}
	s.agent = c.NewAgent(t, options)
	return s
}

// start starts the agent and waits until its node is ready.
func (s *nodeSuite) start(t *testing.T) {
	t.Helper()
	s.agent.Start(t)
	s.awaitNode(t, nodeReady)
}

// nodeReady waits until the node is Ready and may have pods.
func nodeReady(node *v1.Node) error {
	for _, taint := range node.Spec.Taints {
		if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
			return fmt.Errorf("taint %s", taint.Key)
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == v1.NodeReady && c.Status == v1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("not ready: %+v", node.Status.Conditions)
}

func (s *nodeSuite) node() (*v1.Node, error) {
	return s.plane.Client.CoreV1().Nodes().Get(context.Background(), NodeName, metav1.GetOptions{})
}

func (s *nodeSuite) awaitNode(t *testing.T, conditions ...func(*v1.Node) error) *v1.Node {
	t.Helper()
	var got *v1.Node
	Eventually(t, eventually, "node", func() error {
		if s.agent.Exited() {
			t.Fatal("the agent has ended")
		}
		node, err := s.node()
		if err != nil {
			return err
		}
		for _, condition := range conditions {
			if err := condition(node); err != nil {
				return err
			}
		}
		got = node
		return nil
	})
	return got
}

// create creates a pod in the namespace with kubectl.
func (s *nodeSuite) create(t *testing.T, namespace string, pods ...*v1.Pod) {
	t.Helper()
	var all strings.Builder
	for _, pod := range pods {
		pod.Namespace = namespace
		data, err := yaml.Marshal(pod)
		require.NoError(t, err)
		all.WriteString("---\n")
		all.Write(data)
	}
	s.plane.Apply(t, all.String())
	for _, pod := range pods {
		object, err := s.plane.Client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		require.NoError(t, err)
		s.mu.Lock()
		if s.created == nil {
			s.created = map[string]*v1.Pod{}
		}
		s.created[namespace+"/"+pod.Name] = object
		s.mu.Unlock()
	}
}

// await waits until the pod in the API fulfils the conditions.
func (s *nodeSuite) await(t *testing.T, namespace, pod string, conditions ...Condition) *v1.Pod {
	t.Helper()
	return s.plane.AwaitPod(t, namespace, pod, eventually, conditions...)
}

// awaitGone waits until nothing is left of the pods: in the API, in the runtime, and of those that
// create has made also no directory, mount or cgroup.
func (s *nodeSuite) awaitGone(t *testing.T, namespace string, names ...string) {
	t.Helper()
	Eventually(t, eventually, fmt.Sprintf("everything of %v gone", names), func() error {
		for _, name := range names {
			if err := errors.Join(s.plane.NoPod(namespace, name), s.noContainers(t, name)); err != nil {
				return err
			}
			s.mu.Lock()
			pod := s.created[namespace+"/"+name]
			s.mu.Unlock()
			if pod == nil {
				continue
			}
			if err := s.agent.LeftOf(s.Cluster, string(pod.UID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// noContainers is an error while the runtime has anything of the pod.
func (s *nodeSuite) noContainers(t *testing.T, name string) error {
	if n := len(s.Sandboxes(t, name)) + len(s.Containers(t, name)); n > 0 {
		return fmt.Errorf("pod %s has %d containers and sandboxes", name, n)
	}
	return nil
}

// runs returns how many containers of the pod run.
func (s *nodeSuite) runs(t *testing.T, name string) int {
	n := 0
	for _, c := range s.Containers(t, name) {
		if c.State.String() == "CONTAINER_RUNNING" {
			n++
		}
	}
	return n
}

// nodeTest is a test that disturbs no pods but those of its namespace.
type nodeTest struct {
	name string
	run  func(t *testing.T, s *nodeSuite, namespace string)
}

func (s *nodeSuite) runAll(t *testing.T, tests []nodeTest) {
	t.Run("all", func(t *testing.T) {
		for _, test := range tests {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				namespace := s.plane.Namespace(t, strings.ToLower(test.name))
				t.Cleanup(func() { s.noSecretsInEvents(t, namespace) })
				test.run(t, s, namespace)
			})
		}
	})
}

// TestNode is a node of a cluster: what a user does with kubectl and controllers do.
func TestNode(t *testing.T) {
	t.Parallel()
	s := newNodeSuite(t, AgentOptions{})
	if !t.Run("Registration", func(t *testing.T) { testRegistration(t, s) }) {
		return
	}
	s.runAll(t, []nodeTest{
		{"Run", testNodeRun},
		{"DeleteGrace", testDeleteGrace},
		{"DeleteForce", testDeleteForce},
		{"DeleteWhileStarting", testDeleteWhileStarting},
		{"DeleteShorter", testDeleteShorter},
		{"Finalizer", testFinalizer},
		{"Complete", testComplete},
		{"Job", testJob},
		{"Deployment", testDeployment},
		{"DaemonSet", testDaemonSet},
		{"Objects", testAPIObjects},
		{"Refused", testRefused},
		{"MirrorPod", testMirrorPod},
		{"Readiness", testReadiness},
		{"Services", testServices},
		{"ForeignStatus", testForeignStatus},
		{"Claims", testClaims},
		{"TrustBundles", testTrustBundles},
		{"Tokens", testTokens},
		{"LiveUpdates", testLiveUpdates},
		{"Resize", testResize},
		{"ResizePod", testResizePod},
		{"StorageLimits", testStorageLimits},
		{"DeleteWhilePulling", testDeleteWhilePulling},
	})
	t.Run("Taint", func(t *testing.T) { testTaint(t, s) })
	t.Run("Drain", func(t *testing.T) { testDrain(t, s) })
	t.Run("Preemption", func(t *testing.T) { testPreemption(t, s) })
	assert.False(t, s.agent.Exited())
	s.agent.AwaitNoPodDirs(t, within)
	s.noSecretsInLog(t)
}

func testRegistration(t *testing.T, s *nodeSuite) {
	begin := time.Now()
	s.agent.Start(t)
	node := s.awaitNode(t, nodeReady)
	t.Logf("ready after %v", time.Since(begin))
	assert.Equal(t, "linux", node.Labels[v1.LabelOSStable])
	assert.Equal(t, NodeName, node.Labels[v1.LabelHostname])
	assert.Equal(t, NodeName, address(node, v1.NodeHostName))
	assert.Equal(t, NodeIP, address(node, v1.NodeInternalIP))
	assert.NotEmpty(t, node.Status.NodeInfo.ContainerRuntimeVersion)
	assert.Equal(t, "110", node.Status.Capacity.Pods().String())
	assert.NotZero(t, node.Status.Allocatable.Cpu().MilliValue())
	for _, typ := range []v1.NodeConditionType{v1.NodeMemoryPressure, v1.NodeDiskPressure, v1.NodePIDPressure} {
		assert.True(t, slices.ContainsFunc(node.Status.Conditions, func(c v1.NodeCondition) bool {
			return c.Type == typ && c.Status == v1.ConditionFalse
		}), "%s", typ)
	}
	Eventually(t, within, "lease", func() error {
		lease, err := s.plane.Client.CoordinationV1().Leases("kube-node-lease").Get(t.Context(), NodeName,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if refs := lease.OwnerReferences; len(refs) != 1 || refs[0].Kind != "Node" || refs[0].UID != node.UID {
			return fmt.Errorf("owners %+v", refs)
		}
		if d := lease.Spec.LeaseDurationSeconds; d == nil || *d != 40 {
			return fmt.Errorf("duration %v", d)
		}
		return nil
	})
	Eventually(t, within, "images", func() error {
		node, err := s.node()
		if err == nil && !slices.ContainsFunc(node.Status.Images, func(i v1.ContainerImage) bool {
			return slices.Contains(i.Names, s.Registry.Image("busybox:1"))
		}) {
			err = fmt.Errorf("%+v", node.Status.Images)
		}
		return err
	})
}

func address(node *v1.Node, typ v1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == typ {
			return a.Address
		}
	}
	return ""
}

func testNodeRun(t *testing.T, s *nodeSuite, ns string) {
	s.plane.Kubectl(t, "run", "first", "-n", ns, "--image", s.Registry.Image("busybox:1"), "--command", "--",
		"/bin/sh", "-c", Forever)
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=condition=Ready", "pod/first", "--timeout=180s")
	pod := s.await(t, ns, "first", Running)
	assert.True(t, strings.HasPrefix(pod.Status.PodIP, "10.88."), "pod IP %q", pod.Status.PodIP)
	assert.Equal(t, v1.PodQOSBestEffort, pod.Status.QOSClass)
	assert.Equal(t, pod.Generation, pod.Status.ObservedGeneration)
	const dir = "/var/run/secrets/kubernetes.io/serviceaccount/"
	assert.Equal(t, ns, s.Exec(t, "first", "first", "cat", dir+"namespace"))
	assert.Contains(t, s.Exec(t, "first", "first", "cat", dir+"ca.crt"), "BEGIN CERTIFICATE")
	assert.Len(t, strings.Split(s.Exec(t, "first", "first", "cat", dir+"token"), "."), 3, "a token")
	var described string
	Eventually(t, within, "events", func() error {
		described = s.plane.Kubectl(t, "describe", "-n", ns, "pod", "first")
		for _, reason := range []string{"Scheduled", "Pulled", "Created", "Started"} {
			if !strings.Contains(described, " "+reason+" ") {
				return fmt.Errorf("no event %s in:\n%s", reason, described)
			}
		}
		return nil
	})
	assert.Contains(t, s.plane.Kubectl(t, "get", "-n", ns, "pod", "first"), "1/1     Running")
	paths := s.plane.Kubectl(t, "get", "-n", ns, "events", "-o", "jsonpath={.items[*].involvedObject.fieldPath}")
	assert.Contains(t, paths, "spec.containers{first}")
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "first", "--grace-period=1")
	require.NoError(t, s.noRunning(t, "first"), "no object vanishes while its containers run")
	s.awaitGone(t, ns, "first")
}

// noRunning is an error if a container of the pod runs.
func (s *nodeSuite) noRunning(t *testing.T, name string) error {
	if n := s.runs(t, name); n > 0 {
		return fmt.Errorf("%d containers of %s run", n, name)
	}
	return nil
}

func testDeleteGrace(t *testing.T, s *nodeSuite, ns string) {
	dir := t.TempDir()
	s.create(t, ns, MakePod("graceful", Grace(600), Main(Sh("a", "trap 'sleep 2; echo a-end >> /shared/log; exit 3' "+
		"TERM; sleep 2147483647 & wait")), Shared(dir)))
	s.await(t, ns, "graceful", Running)
	awaitTrap(t, s.Cluster, "graceful", "a")
	begin := time.Now()
	// kubectl waits until the object is gone.
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "graceful")
	took := time.Since(begin)
	assert.Equal(t, []string{"a-end"}, logLines(dir))
	assert.NoError(t, s.noRunning(t, "graceful"))
	assert.Less(t, took, eventually, "less than the grace period")
	assert.Greater(t, took, 2*time.Second)
	s.awaitGone(t, ns, "graceful")
}

func testDeleteForce(t *testing.T, s *nodeSuite, ns string) {
	s.create(t, ns, MakePod("forced", Grace(600), Main(Sh("a", Stubborn))))
	s.await(t, ns, "forced", Running)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "forced", "--grace-period=0", "--force")
	s.awaitGone(t, ns, "forced")
}

// A second delete shortens the grace period of the first.
func testDeleteShorter(t *testing.T, s *nodeSuite, ns string) {
	s.create(t, ns, MakePod("shorter", Grace(600), Main(Sh("a", Stubborn))))
	s.await(t, ns, "shorter", Running)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "shorter", "--wait=false")
	time.Sleep(time.Second)
	require.Equal(t, 1, s.runs(t, "shorter"))
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "shorter", "--grace-period=2", "--wait=false")
	s.awaitGone(t, ns, "shorter")
}

func testDeleteWhileStarting(t *testing.T, s *nodeSuite, ns string) {
	s.Registry.SetBroken("busybox:flaky", true)
	pulling := Sh("a", Forever)
	pulling.Image = s.Registry.Image("busybox:flaky")
	pods := []*v1.Pod{
		MakePod("starting-init", Init(Sh("i", Forever)), Main(Sh("a", Forever))),
		MakePod("starting-pull", Main(pulling)),
		MakePod("starting-now", Main(Sh("a", Forever))),
	}
	missing := MakePod("starting-volume", Main(Sh("a", Forever)),
		Mounted("v",
			v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "none"}}}))
	s.create(t, ns, append(pods, missing)...)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "starting-now", "--wait=false")
	s.await(t, ns, "starting-init", func(pod *v1.Pod) error {
		if st := Status(pod, "i").State; st.Running == nil {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	s.await(t, ns, "starting-pull", func(pod *v1.Pod) error {
		if st := Status(pod, "a").State.Waiting; st == nil || !strings.Contains(st.Reason, "ImagePull") {
			return fmt.Errorf("%+v", st)
		}
		return nil
	})
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "starting-init", "starting-pull", "starting-volume")
	s.awaitGone(t, ns, "starting-init", "starting-pull", "starting-volume", "starting-now")
}

// The object of a pod with a finalizer stays with its final status until the finalizer is gone.
func testFinalizer(t *testing.T, s *nodeSuite, ns string) {
	pod := MakePod("finalized", Main(Sh("a", "trap 'exit 3' TERM; sleep 2147483647 & wait")))
	pod.Finalizers = []string{"e2e.kubeletkit.io/wait"}
	s.create(t, ns, pod)
	s.await(t, ns, "finalized", Running)
	awaitTrap(t, s.Cluster, "finalized", "a")
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "finalized", "--wait=false")
	s.await(t, ns, "finalized", Terminated("a", 3), Phase(v1.PodFailed))
	Eventually(t, within, "no containers", func() error { return s.noContainers(t, "finalized") })
	s.plane.Kubectl(t, "patch", "-n", ns, "pod", "finalized", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	s.awaitGone(t, ns, "finalized")
}

func testComplete(t *testing.T, s *nodeSuite, ns string) {
	s.create(t, ns,
		MakePod("succeeds", Policy(v1.RestartPolicyNever), Main(Sh("a", "exit 0"))),
		MakePod("fails", Policy(v1.RestartPolicyNever), Main(Sh("a", "echo -n bye > /dev/termination-log; exit 4"))),
	)
	s.await(t, ns, "succeeds", Phase(v1.PodSucceeded), Terminated("a", 0))
	got := s.await(t, ns, "fails", Phase(v1.PodFailed), Terminated("a", 4))
	assert.Equal(t, "bye", Status(got, "a").State.Terminated.Message)
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "succeeds", "fails")
	s.awaitGone(t, ns, "succeeds", "fails")
}

func testJob(t *testing.T, s *nodeSuite, ns string) {
	s.plane.Apply(t, fmt.Sprintf(`
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: %s}
spec:
  completions: 3
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: %s, command: [/bin/true]}]
`, ns, s.Registry.Image("busybox:1")))
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=condition=Complete", "job/job", "--timeout=180s")
}

func deployment(kind, ns, image, env string) string {
	replicas := "replicas: 3, "
	if kind == "DaemonSet" {
		replicas = ""
	}
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: %s
metadata: {name: d, namespace: %s}
spec: {%sselector: {matchLabels: {app: d}}, template: {metadata: {labels: {app: d}}, spec: {terminationGracePeriodSeconds: 1,
  containers: [{name: c, image: %s, command: [/bin/sh, -c, "%s"], env: [{name: E, value: %q}]}]}}}
`, kind, ns, replicas, image, Forever, env)
}

func testDeployment(t *testing.T, s *nodeSuite, ns string) {
	s.plane.Apply(t, deployment("Deployment", ns, s.Registry.Image("busybox:1"), "1"))
	s.plane.Kubectl(t, "rollout", "status", "-n", ns, "deployment/d", "--timeout=180s")
	s.plane.Apply(t, deployment("Deployment", ns, s.Registry.Image("busybox:2"), "2"))
	s.plane.Kubectl(t, "rollout", "status", "-n", ns, "deployment/d", "--timeout=180s")
	s.plane.Kubectl(t, "rollout", "undo", "-n", ns, "deployment/d")
	s.plane.Kubectl(t, "rollout", "status", "-n", ns, "deployment/d", "--timeout=180s")
	s.plane.Kubectl(t, "scale", "-n", ns, "deployment/d", "--replicas=0")
	s.plane.Kubectl(t, "wait", "-n", ns, "--for=delete", "pod", "-l", "app=d", "--timeout=180s")
}

func testDaemonSet(t *testing.T, s *nodeSuite, ns string) {
	for _, image := range []string{"busybox:1", "busybox:2"} {
		s.plane.Apply(t, deployment("DaemonSet", ns, s.Registry.Image(image), image))
		s.plane.Kubectl(t, "rollout", "status", "-n", ns, "daemonset/d", "--timeout=180s")
	}
}

// Secrets and config maps arrive in variables and volumes, and changes of them in volumes.
func testAPIObjects(t *testing.T, s *nodeSuite, ns string) {
	s.plane.Kubectl(t, "create", "-n", ns, "configmap", "cm", "--from-literal=key=one")
	c := Sh("a", Forever)
	c.Env = []v1.EnvVar{
		{Name: "CM", ValueFrom: &v1.EnvVarSource{ConfigMapKeyRef: &v1.ConfigMapKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Key: "key"}}},
		{Name: "PASSWORD", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{LocalObjectReference: v1.LocalObjectReference{Name: "db"}, Key: "password"}}},
	}
	c.VolumeMounts = []v1.VolumeMount{{Name: "cm", MountPath: "/cm"}, {Name: "db", MountPath: "/db"},
		{Name: "meta", MountPath: "/meta"}}
	pod := MakePod("objects", Main(c),
		Volume("cm",
			v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: v1.LocalObjectReference{Name: "cm"}}}),
		Volume("db", v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "db"}}),
		Volume("meta",
			v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{Path: "name",
				FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}}}}}))
	s.create(t, ns, pod)
	Eventually(t, within, "an event about the secret that is missing", func() error {
		if out := s.plane.Kubectl(t, "get", "-n", ns, "events"); !strings.Contains(out,
			`MountVolume.SetUp failed for volume "db"`) || !strings.Contains(out, `secret "db" not found`) {
			return errors.New(out)
		}
		return nil
	})
	s.plane.Kubectl(t, "create", "-n", ns, "secret", "generic", "db", "--from-literal=password="+secretValue)
	s.await(t, ns, "objects", Running)
	assert.Equal(t, "one "+secretValue+"\n", s.Exec(t, "objects", "a", "sh", "-c", "echo $CM $PASSWORD"))
	assert.Equal(t, "one"+secretValue+"objects", s.Exec(t, "objects", "a", "sh", "-c",
		"cat /cm/key /db/password /meta/name"))
	s.plane.Kubectl(t, "patch", "-n", ns, "configmap", "cm", "-p", `{"data":{"key":"two"}}`)
	s.awaitOutput(t, "the new value", "objects", "two", "cat", "/cm/key")
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", "objects")
	s.awaitGone(t, ns, "objects")
}

// Pods that were bound to the node without a look at it are refused as kubelet does.
func testRefused(t *testing.T, s *nodeSuite, ns string) {
	large := Sh("a", Forever)
	large.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("1k")}
	cpu, affinity := MakePod("refused-cpu", Main(large)), MakePod("refused-affinity", Main(Sh("a", Forever)))
	affinity.Spec.NodeSelector = map[string]string{"no": "such"}
	for _, pod := range []*v1.Pod{cpu, affinity} {
		pod.Spec.NodeName = NodeName
	}
	port := func(name string) *v1.Pod {
		c := Sh("a", Forever)
		c.Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: 18080}}
		pod := MakePod(name, Main(c))
		pod.Spec.NodeName = NodeName
		return pod
	}
	s.create(t, ns, port("refused-not"))
	s.await(t, ns, "refused-not", Running)
	sysctl := MakePod("refused-sysctl", Main(Sh("a", Forever)))
	sysctl.Spec.NodeName = NodeName
	sysctl.Spec.SecurityContext = &v1.PodSecurityContext{Sysctls: []v1.Sysctl{{Name: "kernel.msgmax", Value: "65536"}}}
	s.create(t, ns, cpu, affinity, port("refused-port"), sysctl)
	names := []string{"refused-not"}
	for name, reason := range map[string]string{cpu.Name: "OutOfcpu", affinity.Name: "NodeAffinity",
		"refused-port": "NodePorts", sysctl.Name: "SysctlForbidden"} {
		assert.Equal(t, reason, s.await(t, ns, name, Phase(v1.PodFailed)).Status.Reason, name)
		names = append(names, name)
	}
	s.plane.Kubectl(t, append([]string{"delete", "-n", ns, "pod"}, names...)...)
	s.awaitGone(t, ns, names...)
}

// A pod that does not tolerate a taint with the effect NoExecute is refused, also if it was bound
// to the node without a look at it.
func testTaint(t *testing.T, s *nodeSuite) {
	ns := s.plane.Namespace(t, "taint")
	s.plane.Kubectl(t, "taint", "node", NodeName, "e2e=yes:NoExecute")
	Eventually(t, within, "the agent knows the taint", func() error {
		refused, tolerates := MakePod("refused-taint", Grace(1), Main(Sh("a", Forever))),
			MakePod("tolerates", Grace(1), Main(Sh("a", Forever)))
		refused.Spec.NodeName, tolerates.Spec.NodeName = NodeName, NodeName
		tolerates.Spec.Tolerations = []v1.Toleration{{Key: "e2e", Operator: v1.TolerationOpExists}}
		for _, pod := range []*v1.Pod{refused, tolerates} {
			pod.Namespace = ns
			if _, err := s.plane.Client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
				return err
			}
		}
		s.await(t, ns, "tolerates", Running)
		// The controller of taints deletes the refused pod at once, maybe before it is refused.
		events, err := s.plane.Client.CoreV1().Events(ns).List(t.Context(),
			metav1.ListOptions{FieldSelector: "reason=TaintToleration,involvedObject.name=refused-taint"})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("the pod was not refused")
		}
		s.plane.Kubectl(t, "delete", "-n", ns, "pod", "--ignore-not-found", "refused-taint", "tolerates")
		return err
	})
	s.plane.Kubectl(t, "taint", "node", NodeName, "e2e-")
	s.awaitGone(t, ns, "refused-taint", "tolerates")
}

// A static pod has a mirror pod, which returns when it is deleted; the static pod runs on.
func testMirrorPod(t *testing.T, s *nodeSuite, ns string) {
	static := MakePod("static", Main(Sh("a", Forever)))
	static.Namespace = ns
	s.agent.Put(t, static)
	name := FullName(static)
	mirror := s.await(t, ns, name, Running, Ready(true))
	assert.NotEmpty(t, mirror.Annotations["kubernetes.io/config.mirror"])
	require.Len(t, mirror.OwnerReferences, 1)
	assert.Equal(t, "Node", mirror.OwnerReferences[0].Kind)
	container := Status(mirror, "a").ContainerID
	s.plane.Kubectl(t, "delete", "-n", ns, "pod", name)
	again := s.await(t, ns, name, func(pod *v1.Pod) error {
		if pod.UID == mirror.UID {
			return errors.New("the old one")
		}
		return nil
	}, Running)
	assert.Equal(t, container, Status(again, "a").ContainerID, "the static pod was not restarted")

	// A rollout: the mirror pod follows its file.
	static = MakePod("static", Main(Sh("a", Forever), Sh("b", Forever)))
	static.Namespace = ns
	s.agent.Put(t, static)
	s.await(t, ns, name, func(pod *v1.Pod) error {
		if len(pod.Spec.Containers) != 2 {
			return errors.New("still the old one")
		}
		return nil
	}, Running)
	s.agent.Remove(t, static)
	s.awaitGone(t, ns, name)
}

func testReadiness(t *testing.T, s *nodeSuite, ns string) {
	c := Sh("a", Forever)
	c.ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"test", "-e",
		"/tmp/ready"}}}, PeriodSeconds: 1}
	s.create(t, ns, MakePod("readiness", Main(c)))
	s.await(t, ns, "readiness", Running, Ready(false))
	s.Exec(t, "readiness", "a", "touch", "/tmp/ready")
	s.await(t, ns, "readiness", Ready(true))
	s.Exec(t, "readiness", "a", "rm", "/tmp/ready")
	s.await(t, ns, "readiness", Ready(false))
	Eventually(t, within, "event", func() error {
		if out := s.plane.Kubectl(t, "get", "-n", ns, "events"); !strings.Contains(out, "Readiness probe failed") {
			return errors.New(out)
		}
		return nil
	})
}

// The variables of services are there, unless the pod declines them.
func testServices(t *testing.T, s *nodeSuite, ns string) {
	s.plane.Kubectl(t, "create", "-n", ns, "service", "clusterip", "web", "--tcp=80:80")
	pods := 0
	Eventually(t, eventually, "the variables of the service", func() error {
		// a container has those that the agent knows when it starts
		pods++
		name := fmt.Sprint("links-", pods)
		s.create(t, ns, MakePod(name, Main(Sh("a", Forever))))
		s.await(t, ns, name, Running)
		if env := s.Exec(t, name, "a", "env"); !strings.Contains(env, "WEB_SERVICE_PORT=80") {
			return fmt.Errorf("pod %d has:\n%s", pods, env)
		}
		return nil
	})
	without := MakePod("no-links", Main(Sh("a", Forever)))
	without.Spec.EnableServiceLinks = new(bool)
	s.create(t, ns, without)
	s.await(t, ns, without.Name, Running)
	env := s.Exec(t, without.Name, "a", "env")
	assert.NotContains(t, env, "WEB_SERVICE_PORT")
	assert.Contains(t, env, "KUBERNETES_SERVICE_HOST=10.99.0.1")
}

// What another writer puts into the status is repaired, and conditions of others stay.
func testForeignStatus(t *testing.T, s *nodeSuite, ns string) {
	pod := MakePod("foreign", Main(Sh("a", Forever)))
	pod.Spec.ReadinessGates = []v1.PodReadinessGate{{ConditionType: "e2e.kubeletkit.io/gate"}}
	s.create(t, ns, pod)
	s.await(t, ns, "foreign", Running, Ready(false))
	s.plane.Kubectl(t, "patch", "-n", ns, "pod", "foreign", "--subresource=status", "-p",
		`{"status":{"conditions":[{"type":"e2e.kubeletkit.io/gate","status":"True"}]}}`)
	s.await(t, ns, "foreign", Ready(true))
	s.plane.Kubectl(t, "patch", "-n", ns, "pod", "foreign", "--subresource=status", "-p",
		`{"status":{"podIP":null,"podIPs":null,"message":"mine"}}`)
	s.plane.Kubectl(t, "label", "-n", ns, "pod", "foreign", "a=b") // kubelet looks at a pod that has changed
	s.await(t, ns, "foreign", Ready(true), func(pod *v1.Pod) error {
		if pod.Status.PodIP == "" || !slices.ContainsFunc(pod.Status.Conditions,
			func(c v1.PodCondition) bool { return c.Type == "e2e.kubeletkit.io/gate" }) {
			return fmt.Errorf("%+v", pod.Status)
		}
		return nil
	})
}

// A node that is drained has no pods but those of daemon sets, and gets none until it is uncordoned.
func testDrain(t *testing.T, s *nodeSuite) {
	ns := s.plane.Namespace(t, "drained")
	s.plane.Apply(t, deployment("Deployment", ns, s.Registry.Image("busybox:1"), "1"))
	s.plane.Kubectl(t, "rollout", "status", "-n", ns, "deployment/d", "--timeout=180s")
	s.plane.Kubectl(t, "drain", NodeName, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=180s")
	s.awaitNode(t, func(node *v1.Node) error {
		if !node.Spec.Unschedulable {
			return errors.New("not cordoned")
		}
		return nil
	})
	Eventually(t, within, "the replacements wait for a node", func() error {
		pods, err := s.plane.Client.CoreV1().Pods(ns).List(t.Context(), metav1.ListOptions{})
		if err == nil && len(pods.Items) == 0 {
			err = errors.New("no pods")
		}
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if pod := &pods.Items[i]; pod.Spec.NodeName != "" || pod.Status.Phase != v1.PodPending {
				return fmt.Errorf("%s is %s on %q", pod.Name, pod.Status.Phase, pod.Spec.NodeName)
			}
		}
		return nil
	})
	s.awaitNodeEvent(t, "NodeNotSchedulable")
	s.plane.Kubectl(t, "uncordon", NodeName)
	s.plane.Kubectl(t, "rollout", "status", "-n", ns, "deployment/d", "--timeout=180s")
	s.awaitNodeEvent(t, "NodeSchedulable")
}

func (s *nodeSuite) awaitNodeEvent(t *testing.T, reason string) {
	t.Helper()
	Eventually(t, within, "event "+reason, func() error {
		events, err := s.plane.Client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.kind=Node,reason=" + reason})
		if err == nil && len(events.Items) == 0 {
			err = errors.New("none")
		}
		return err
	})
}
