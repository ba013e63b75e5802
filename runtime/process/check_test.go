package process

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	criv1 "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCheckContainer(t *testing.T) {
	user := &hostFacts{UID: 1000, GID: 1000, SameFile: func(a, b string) bool { return a == "/link" && b == "/data" }}
	root := &hostFacts{SameFile: user.SameFile}
	security := func(s *criv1.LinuxContainerSecurityContext) func(*criv1.ContainerConfig) {
		return func(c *criv1.ContainerConfig) { c.Linux = &criv1.LinuxContainerConfig{SecurityContext: s} }
	}
	mount := func(at, from string) func(*criv1.ContainerConfig) {
		return func(c *criv1.ContainerConfig) {
			c.Mounts = append(c.Mounts, &criv1.Mount{ContainerPath: at, HostPath: from})
		}
	}
	for name, test := range map[string]struct {
		change            func(*criv1.ContainerConfig)
		host              *hostFacts
		annotations       map[string]string
		refused, warnings string
		env               []string
		links             []link
	}{
		"plain":              {change: func(*criv1.ContainerConfig) {}},
		"no command":         {change: func(c *criv1.ContainerConfig) { c.Command, c.Args = nil, []string{"x"} }, refused: "no command is given"},
		"relative dir":       {change: func(c *criv1.ContainerConfig) { c.WorkingDir = "x" }, refused: "not an absolute path"},
		"log elsewhere":      {change: func(c *criv1.ContainerConfig) { c.LogPath = "../x" }, refused: "is not inside the log directory"},
		"privileged":         {change: security(&criv1.LinuxContainerSecurityContext{Privileged: true}), refused: "privileged needs an agent that runs as root"},
		"root privileged":    {change: security(&criv1.LinuxContainerSecurityContext{Privileged: true}), host: root},
		"privileged seccomp": {change: security(&criv1.LinuxContainerSecurityContext{Privileged: true, Seccomp: &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_Localhost, LocalhostRef: "x"}}), host: root},
		"add":                {change: security(&criv1.LinuxContainerSecurityContext{Capabilities: &criv1.Capability{AddCapabilities: []string{"NET_ADMIN"}}}), refused: "NET_ADMIN"},
		"drop":               {change: security(&criv1.LinuxContainerSecurityContext{Capabilities: &criv1.Capability{DropCapabilities: []string{"ALL"}}})},
		"root drop":          {change: security(&criv1.LinuxContainerSecurityContext{Capabilities: &criv1.Capability{DropCapabilities: []string{"ALL"}}}), host: root, warnings: "capabilities are not dropped"},
		"read-only root":     {change: security(&criv1.LinuxContainerSecurityContext{ReadonlyRootfs: true}), warnings: "root file system"},
		"seccomp":            {change: security(&criv1.LinuxContainerSecurityContext{Seccomp: &criv1.SecurityProfile{}}), warnings: "seccomp"},
		"own seccomp":        {change: security(&criv1.LinuxContainerSecurityContext{Seccomp: &criv1.SecurityProfile{ProfileType: criv1.SecurityProfile_Localhost, LocalhostRef: "x"}}), refused: `seccomp profile "x"`},
		"selinux":            {change: security(&criv1.LinuxContainerSecurityContext{SelinuxOptions: &criv1.SELinuxOption{Type: "t"}}), warnings: "SELinux"},
		"device": {change: func(c *criv1.ContainerConfig) {
			c.Devices = []*criv1.Device{{HostPath: "/dev/a", ContainerPath: "/dev/b"}}
		}, refused: "device /dev/a"},
		"same path":       {change: mount("/data", "/data/")},
		"same file":       {change: mount("/link", "/data")},
		"other path":      {change: mount("/data", "/var/lib/x"), refused: "/var/lib/x cannot be mounted at /data"},
		"in environment":  {change: mount("/data/a-b", "/var/lib/x"), annotations: map[string]string{MountsAnnotation: "env"}, env: []string{"MOUNT_DATA_A_B=/var/lib/x"}},
		"by a link":       {change: mount("/data/a-b", "/var/lib/x"), annotations: map[string]string{MountsAnnotation: "link"}, links: []link{{"/data/a-b", "/var/lib/x"}}},
		"hosts":           {change: mount("/etc/hosts", "/x/etc-hosts")},
		"message":         {change: mount("/dev/termination-log", "/x/1234"), env: []string{"TERMINATION_MESSAGE_PATH=/x/1234"}},
		"service account": {change: mount("/var/run/secrets/kubernetes.io/serviceaccount", "/x/token"), env: []string{"MOUNT_VAR_RUN_SECRETS_KUBERNETES_IO_SERVICEACCOUNT=/x/token"}},
		"image": {change: func(c *criv1.ContainerConfig) {
			c.Mounts = []*criv1.Mount{{ContainerPath: "/x", Image: &criv1.ImageSpec{Image: "i"}}}
		}, refused: "image i"},
		"read-only mount": {change: func(c *criv1.ContainerConfig) {
			c.Mounts = []*criv1.Mount{{ContainerPath: "/x", HostPath: "/x", Readonly: true}}
		}, warnings: "read-only mounts are writable"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &criv1.ContainerConfig{Metadata: &criv1.ContainerMetadata{Name: "c"}, Command: []string{"true"}}
			test.change(c)
			host := test.host
			if host == nil {
				host = user
			}
			f, env, links := checkContainer(c, &criv1.PodSandboxConfig{Annotations: test.annotations}, host)
			match := func(want string, got []string) {
				t.Helper()
				if want == "" {
					assert.Empty(t, got)
				} else {
					assert.Contains(t, strings.Join(got, "; "), want)
				}
			}
			match(test.refused, f.refused)
			match(test.warnings, f.warnings)
			assert.Equal(t, test.env, env)
			assert.Equal(t, test.links, links)
			assert.Equal(t, test.refused != "", f.err("container c") != nil)
		})
	}
}

func TestCheckSandbox(t *testing.T) {
	host := &hostFacts{Nameservers: []string{"192.0.2.1"}}
	config := func() *criv1.PodSandboxConfig {
		return &criv1.PodSandboxConfig{
			Metadata: &criv1.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"},
			Linux: &criv1.LinuxPodSandboxConfig{SecurityContext: &criv1.LinuxSandboxSecurityContext{
				NamespaceOptions: &criv1.NamespaceOption{Network: criv1.NamespaceMode_NODE},
			}},
		}
	}
	c := config()
	c.PortMappings = []*criv1.PortMapping{{ContainerPort: 80, HostPort: 80}, {ContainerPort: 81}}
	c.DnsConfig = &criv1.DNSConfig{Servers: []string{"192.0.2.1"}}
	assert.Equal(t, &findings{}, checkSandbox(c, host))

	c = config()
	c.Linux.SecurityContext.NamespaceOptions.Network = criv1.NamespaceMode_POD
	c.DnsConfig = &criv1.DNSConfig{Servers: []string{"192.0.2.2"}}
	c.PortMappings = []*criv1.PortMapping{{ContainerPort: 80, HostPort: 8080}}
	c.Linux.Sysctls = map[string]string{"kernel.shmmax": "1"}
	f := checkSandbox(c, host)
	assert.Len(t, f.warnings, 2)
	assert.Len(t, f.refused, 2)
}

func TestOptions(t *testing.T) {
	for want, opts := range map[string]Options{
		"Dir is required":         {},
		"is not an absolute path": {Dir: "x"},
		"too long for a socket":   {Dir: "/" + strings.Repeat("x", 200)},
		"PIDLimit":                {Dir: "/x", PIDLimit: -1},
		"HostIPs":                 {Dir: "/x", HostIPs: []string{"x"}},
	} {
		assert.ErrorContains(t, opts.validate(), want)
	}
}
