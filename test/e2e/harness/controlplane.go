package harness

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	watchtools "k8s.io/client-go/tools/watch"
)

// NodeIP is the address of the nodes of a [ControlPlane]; behind it is nothing.
const NodeIP = "192.0.2.10"

// kubeletClient is the user that the API server is to the ports of nodes.
const kubeletClient = "kube-apiserver-kubelet-client"

// controlPlaneURL is the address of the API server of a [ControlPlane], in its network namespace.
const controlPlaneURL = "https://" + apiServerAddr

// ControlPlane is etcd, kube-apiserver, kube-controller-manager and kube-scheduler in a
// network namespace, with certificates of an authority of its own. Nodes are authorized
// as in a cluster of kubeadm: RBAC, the Node authorizer and NodeRestriction. The programs may
// be of an older version, see [OldKubernetes].
type ControlPlane struct {
	// Client is the client of an administrator. It has no limit of requests.
	Client kubernetes.Interface
	// REST is the configuration of Client.
	REST *rest.Config

	dir    string
	admin  string // kubeconfig
	flags  map[string][]string
	net    *NetNS
	ca     *authority
	etcd   *process
	api    *process
	others []*process
}

// NewControlPlane starts a control plane that ends with the test, in the network namespace.
func NewControlPlane(t testing.TB, net *NetNS) *ControlPlane {
	t.Helper()
	return NewControlPlaneWith(t, net, nil)
}

// ClusterDirVar stands for [ControlPlane.ClusterDir] in the flags of [NewControlPlaneWith].
const ClusterDirVar = "{cluster-dir}"

// NewControlPlaneWith is NewControlPlane with further flags for kube-apiserver,
// kube-controller-manager and kube-scheduler.
func NewControlPlaneWith(t testing.TB, net *NetNS, flags map[string][]string) *ControlPlane {
	t.Helper()
	Need(t, "etcd")
	bins := map[string]string{}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		bins[name] = controlPlaneBinary(t, name)
	}
	KubernetesBinary(t, "kubectl")
	dir, err := os.MkdirTemp("", "kk")
	if err != nil {
		t.Fatal(err)
	}
	p := &ControlPlane{dir: dir, net: net, admin: filepath.Join(dir, "admin.kubeconfig"), flags: flags}
	t.Cleanup(func() { p.close(t) })
	if p.ca, err = newAuthority(dir); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, user, group string }{
		{"kube-apiserver", "kube-apiserver", ""}, {"admin", "admin", "system:masters"},
		{"kube-controller-manager", "system:kube-controller-manager", ""},
		{"kube-scheduler", "system:kube-scheduler", ""},
		{"kubelet-client", kubeletClient, ""},
	} {
		if err := p.ca.issue(c.name, c.user, 24*time.Hour, c.group); err != nil {
			t.Fatal(err)
		}
		if _, err := p.ca.kubeconfig(c.name, controlPlaneURL, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(p.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	if p.REST, err = clientcmd.BuildConfigFromFlags("", p.admin); err != nil {
		t.Fatal(err)
	}
	p.REST.Dial, p.REST.QPS = net.DialContext, -1
	if p.Client, err = kubernetes.NewForConfig(p.REST); err != nil {
		t.Fatal(err)
	}

	// A node takes its address from the interface of the default route.
	if err := net.addInterface(NodeIP); err != nil {
		t.Fatal(err)
	}
	p.etcd = p.start(t, "etcd", "etcd",
		"--data-dir", p.path("etcd"), "--unsafe-no-fsync",
		"--listen-client-urls", "http://"+etcdAddr, "--advertise-client-urls", "http://"+etcdAddr,
		"--listen-peer-urls", "http://"+etcdPeerAddr, "--initial-advertise-peer-urls", "http://"+etcdPeerAddr,
		"--initial-cluster", "default=http://"+etcdPeerAddr)
	p.StartAPIServer(t)
	_, err = p.Client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "e2e-kubelet-client"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeletClient}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// Both wait for the API server themselves, but with pauses that grow.
	for name, args := range map[string][]string{
		"kube-controller-manager": {
			"--kubeconfig", p.path("kube-controller-manager.kubeconfig"), "--leader-elect=false",
			"--bind-address=127.0.0.1", "--profiling=false",
			"--service-account-private-key-file", p.path("kube-apiserver.key"), "--root-ca-file", p.path("ca.crt"),
			"--cluster-signing-cert-file", p.path("ca.crt"), "--cluster-signing-key-file", p.path("ca.key"),
			"--use-service-account-credentials", "--allocate-node-cidrs", "--cluster-cidr=10.88.0.0/16",
		},
		"kube-scheduler": {"--kubeconfig", p.path("kube-scheduler.kubeconfig"), "--leader-elect=false",
			"--bind-address=127.0.0.1", "--profiling=false"},
	} {
		p.others = append(p.others, p.start(t, name, bins[name], append(args, flags[name]...)...))
	}
	// The namespace has its service account some time after the controller manager has started.
	Eventually(t, time.Minute, "default service account", func() error {
		_, err := p.Client.CoreV1().ServiceAccounts("default").Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return p
}

// auditPolicy has one line for each write, without what was written.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: ["system:nodes"]
- level: None
`

// start starts a program whose output goes to <name>.log.
func (p *ControlPlane) start(t testing.TB, name, bin string, args ...string) *process {
	t.Helper()
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], ClusterDirVar, p.dir)
	}
	process, err := start(p.net, p.path(name+".log"), nil, bin, args...)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// StartAPIServer starts the API server, again if it was killed, and waits until it is ready.
func (p *ControlPlane) StartAPIServer(t testing.TB) {
	t.Helper()
	host, port, _ := strings.Cut(apiServerAddr, ":")
	args := []string{
		"--etcd-servers", "http://" + etcdAddr,
		"--bind-address", host, "--advertise-address", host, "--secure-port", port,
		"--tls-cert-file", p.path("kube-apiserver.crt"), "--tls-private-key-file", p.path("kube-apiserver.key"),
		"--client-ca-file", p.path("ca.crt"),
		"--kubelet-client-certificate", p.path("kubelet-client.crt"), "--kubelet-client-key",
		p.path("kubelet-client.key"),
		"--kubelet-preferred-address-types", "InternalIP",
		"--service-account-issuer", "https://e2e", "--service-account-signing-key-file", p.path("kube-apiserver.key"),
		"--service-account-key-file", p.path("kube-apiserver.key"),
		"--service-cluster-ip-range", "10.99.0.0/24", "--endpoint-reconciler-type", "none",
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--enable-bootstrap-token-auth",
		"--audit-policy-file", p.path("audit.yaml"), "--audit-log-path", p.path("audit.log"),
		"--allow-privileged", "--profiling=false",
		"--feature-gates", "ClusterTrustBundle=true,ClusterTrustBundleProjection=true",
		"--runtime-config", "certificates.k8s.io/v1beta1/clustertrustbundles=true",
	}
	p.api = p.start(t, "kube-apiserver", controlPlaneBinary(t, "kube-apiserver"),
		append(args, p.flags["kube-apiserver"]...)...)
	Eventually(t, 2*time.Minute, "kube-apiserver ready", func() error {
		for name, process := range map[string]*process{"etcd": p.etcd, "kube-apiserver": p.api} {
			if process.exited() {
				t.Fatalf("%s ended: %v\n%s", name, process.err, tail(p.path(name+".log"), 20))
			}
		}
		return p.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error()
	})
}

// StartAttacher starts the external-attacher for the driver with the socket, as an administrator. It ends with the
// test, and when it loses the connection to the driver. Call it again after a restart of the driver.
func (p *ControlPlane) StartAttacher(t testing.TB, driver string) {
	t.Helper()
	p.others = append(p.others, p.start(t, "csi-attacher", KubernetesBinary(t, "csi-attacher"),
		"--kubeconfig", p.admin, "--csi-address", driver, "--retry-interval-max=1s"))
}

// KillAPIServer kills the API server.
func (p *ControlPlane) KillAPIServer(t testing.TB) {
	t.Helper()
	if err := p.api.stop(syscall.SIGKILL, 10*time.Second); err != nil {
		t.Fatal(err)
	}
}

// FreezeAPIServer stops the API server, so that it accepts connections and never answers, or
// continues it.
func (p *ControlPlane) FreezeAPIServer(t testing.TB, frozen bool) {
	t.Helper()
	sig := syscall.SIGCONT
	if frozen {
		sig = syscall.SIGSTOP
	}
	if err := p.api.cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// FreezeControllers stops the controller manager and the scheduler, or continues them.
func (p *ControlPlane) FreezeControllers(t testing.TB, frozen bool) {
	t.Helper()
	sig := syscall.SIGCONT
	if frozen {
		sig = syscall.SIGSTOP
	}
	for _, process := range p.others {
		if err := process.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
}

// NodeKubeconfig returns a kubeconfig with a certificate for the node, as kubeadm issues it.
func (p *ControlPlane) NodeKubeconfig(t testing.TB, node string) string {
	t.Helper()
	return p.ShortNodeKubeconfig(t, node, 24*time.Hour)
}

// ShortNodeKubeconfig returns a kubeconfig with a certificate for the node that expires. It
// replaces another one of the node.
func (p *ControlPlane) ShortNodeKubeconfig(t testing.TB, node string, life time.Duration) string {
	t.Helper()
	if err := p.ca.issue(node, "system:node:"+node, life, "system:nodes"); err != nil {
		t.Fatal(err)
	}
	path, err := p.ca.kubeconfig(node, controlPlaneURL, "")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Issue returns a certificate of the authority of the control plane, for a user in the groups.
func (p *ControlPlane) Issue(t testing.TB, user string, groups ...string) tls.Certificate {
	t.Helper()
	if err := p.ca.issue(user, user, 24*time.Hour, groups...); err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(p.path(user+".crt"), p.path(user+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// Authority returns what clients have to trust, and its file.
func (p *ControlPlane) Authority() (*x509.CertPool, string) {
	pool := x509.NewCertPool()
	pool.AddCert(p.ca.cert)
	return pool, p.path("ca.crt")
}

// BootstrapKubeconfig returns a kubeconfig with a bootstrap token, as kubeadm join uses it:
// its user may request a certificate for a node, and the request is approved.
func (p *ControlPlane) BootstrapKubeconfig(t testing.TB) string {
	t.Helper()
	p.Apply(t, bootstrapObjects)
	path, err := p.ca.kubeconfig("bootstrap", controlPlaneURL, "abcdef.0123456789abcdef")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

const bootstrapObjects = `
apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true", auth-extra-groups: "system:bootstrappers:e2e"}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-bootstrap}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers:e2e"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-approve}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers:e2e"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-rotate}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:nodes"}]
`

// ClusterDir is the directory with the certificates of the control plane.
func (p *ControlPlane) ClusterDir() string { return p.dir }

// Namespace makes a namespace for a test, which is deleted when the test ends, and waits
// for its service account.
func (p *ControlPlane) Namespace(t testing.TB, name string) string {
	t.Helper()
	_, err := p.Client.CoreV1().Namespaces().Create(t.Context(),
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := timeoutContext()
		defer cancel()
		if err := p.Client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Log(err)
		}
	})
	Eventually(t, time.Minute, "service account of the namespace", func() error {
		_, err := p.Client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		return err
	})
	return name
}

// WatchPods watches the pods of the namespace from now on, until ctx ends. It lists them first:
// with an etcd that reports no progress, a watch without a resource version ends early. The API
// server closes watches that it finds too slow, as on a loaded machine; they are opened again.
func (p *ControlPlane) WatchPods(t testing.TB, ctx context.Context, namespace string) watch.Interface {
	t.Helper()
	pods := p.Client.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := watchtools.NewRetryWatcherWithContext(ctx, list.ResourceVersion, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, opts)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// AwaitPod waits until the pod in the API fulfils the conditions, and returns it.
func (p *ControlPlane) AwaitPod(t testing.TB, namespace, name string, timeout time.Duration,
	conditions ...Condition) *v1.Pod {
	t.Helper()
	var got *v1.Pod
	Eventually(t, timeout, "pod "+namespace+"/"+name, func() error {
		pod, err := p.Client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range conditions {
			if err := condition(pod); err != nil {
				return err
			}
		}
		got = pod
		return nil
	})
	return got
}

func (p *ControlPlane) path(name string) string { return filepath.Join(p.dir, name) }

func (p *ControlPlane) close(t testing.TB) {
	for _, process := range append([]*process{p.api, p.etcd}, p.others...) {
		if process == nil {
			continue
		}
		if err := process.stop(syscall.SIGKILL, 10*time.Second); err != nil {
			t.Log(err)
		}
	}
	if t.Failed() {
		for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "csi-attacher"} {
			if !exists(p.path(name + ".log")) {
				continue
			}
			t.Logf("last words of %s:\n%s", name, tail(p.path(name+".log"), 8))
		}
	}
	if os.Getenv("KUBELETKIT_E2E_KEEP") == "1" {
		t.Logf("kept %s", p.dir)
		return
	}
	if err := os.RemoveAll(p.dir); err != nil {
		t.Log(err)
	}
}

// NoPod is an error while the API has the pod.
func (p *ControlPlane) NoPod(namespace, name string) error {
	pod, err := p.Client.CoreV1().Pods(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err == nil {
		return fmt.Errorf("pod %s/%s is there, phase %s", namespace, name, pod.Status.Phase)
	}
	if !isNotFound(err) {
		return err
	}
	return nil
}

// Audited returns how many requests nodes have made until now, by verb and resource as in
// "get pods" and "patch pods/status". A watch counts when it ends.
func (p *ControlPlane) Audited(t testing.TB) map[string]int {
	t.Helper()
	data, err := os.ReadFile(p.path("audit.log"))
	if err != nil {
		t.Fatal(err)
	}
	calls := map[string]int{}
	for line := range bytes.Lines(data) {
		var entry struct {
			Stage, Verb string
			ObjectRef   struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Stage == "ResponseComplete" {
			call := entry.Verb + " " + entry.ObjectRef.Resource
			if entry.ObjectRef.Subresource != "" {
				call += "/" + entry.ObjectRef.Subresource
			}
			calls[call]++
		}
	}
	return calls
}
