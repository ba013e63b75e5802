package scsi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/internal/mounting"
	"github.com/kubeletkit/kubeletkit/node/volume"
)

// Exit codes of iscsiadm(8).
const (
	exitSessionNotFound = 2
	exitInvalid         = 7 // also for an iface that does not exist
	exitSessionExists   = 15
	exitNothingFound    = 21
)

// loggedIn is the state of a session that works.
const loggedIn = "LOGGED_IN"

// session is a session of the kernel.
type session struct {
	iqn, iface, state string
	// host is the name of its SCSI host.
	host    string
	portals []string
	// disks are the names of its devices, by the LUN.
	disks map[string]string
}

func (s session) has(portal string) bool {
	return slices.ContainsFunc(s.portals, func(p string) bool { return samePortal(p, portal) })
}

// sessions returns the sessions with a target.
func (t *iscsi) sessions(iqn string) (sessions []session, err error) {
	const class = "sys/class/iscsi_session"
	found, err := entriesOf(t.path(class), "session")
	for _, path := range found {
		name := filepath.Base(path)
		if t.read(class, name, "targetname") != iqn {
			continue
		}
		s := session{iqn: iqn, iface: t.read(class, name, "ifacename"), state: t.read(class, name, "state"),
			disks: map[string]string{}}
		device, err := filepath.EvalSymlinks(filepath.Join(path, "device"))
		if errors.Is(err, os.ErrNotExist) { // it has ended meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		s.host = filepath.Base(filepath.Dir(device))
		connections, _ := entriesOf(device, "connection")
		for _, c := range connections {
			of := filepath.Join(class, name, "device", filepath.Base(c), "iscsi_connection", filepath.Base(c))
			s.portals = append(s.portals, net.JoinHostPort(t.read(of, "address"), t.read(of, "port")),
				net.JoinHostPort(t.read(of, "persistent_address"), t.read(of, "persistent_port")))
		}
		targets, _ := entriesOf(device, "target")
		for _, target := range targets {
			luns, _ := entriesOf(target, "")
			for _, lun := range luns {
				blocks, _ := entriesOf(filepath.Join(lun, "block"), "")
				if at := strings.LastIndexByte(lun, ':'); at >= 0 && len(blocks) > 0 {
					s.disks[lun[at+1:]] = filepath.Base(blocks[0])
				}
			}
		}
		sessions = append(sessions, s)
	}
	return sessions, err
}

// session returns the session of a volume with a portal, or nil.
func (t *iscsi) session(r record, portal string) (*session, error) {
	sessions, err := t.sessions(r.Iqn)
	for _, s := range sessions {
		if s.iface == r.Iface && s.has(portal) {
			return &s, err
		}
	}
	return nil, err
}

// iscsiadm runs the program. hidden is an argument that is in no error.
func (t *iscsi) iscsiadm(ctx context.Context, hidden string, args ...string) (string, error) {
	output, err := t.call(ctx, "iscsiadm", args...)
	if err == nil {
		return output, nil
	}
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: install the package open-iscsi (Debian, Ubuntu, SUSE, Alpine) or "+
			"iscsi-initiator-utils (Fedora, Red Hat)", err)
	}
	text := strings.TrimSpace(output)
	if i := slices.Index(args, hidden); hidden != "" && i >= 0 {
		args = slices.Replace(slices.Clone(args), i, i+1, "***")
		text = strings.ReplaceAll(text, hidden, "***")
	}
	return output, fmt.Errorf("iscsiadm %s: %w: %s", strings.Join(args, " "), err, text)
}

// ignoring returns err, and nil if it is a program's that has ended with one of the exit codes.
func ignoring(err error, codes ...int) error {
	if failed := (mounting.ExitCoder)(nil); errors.As(err, &failed) && slices.Contains(codes, failed.ExitCode()) {
		return nil
	}
	return err
}

// login discovers the target of a volume at a portal and logs in, as kubelet does.
func (t *iscsi) login(ctx context.Context, req volume.PersistentRequest, r record, portal string) error {
	source := req.Volume.Spec.ISCSI
	secret, err := t.secret(ctx, req.Pod, source)
	if err != nil {
		return err
	}
	if r.InitiatorName != "" {
		if err := t.copyIface(ctx, r); err != nil {
			return fmt.Errorf("making an iface for the initiator %s: %w", r.InitiatorName, err)
		}
	}
	discovery := []string{"-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", r.Iface}
	node := []string{"-m", "node", "-p", portal, "-T", r.Iqn, "-I", r.Iface}
	do := func(of []string, args ...string) error {
		_, err := t.iscsiadm(ctx, "", slices.Concat(of, args)...)
		return err
	}
	if err := do(discovery, "-o", "new"); errors.Is(err, exec.ErrNotFound) {
		return err
	}
	if source.DiscoveryCHAPAuth {
		if err := t.authenticate(ctx, discovery, "discovery.sendtargets.auth.", secret); err != nil {
			return err
		}
	}
	if err := do(discovery, "--discover"); err != nil {
		_ = do(discovery, "-o", "delete")
		return err
	}
	_ = do(node, "-o", "update", "-n", "node.session.scan", "-v", "manual") // not all versions have it
	if source.SessionCHAPAuth {
		if err := t.authenticate(ctx, node, "node.session.auth.", secret); err != nil {
			return err
		}
	}
	if err := ignoring(do(node, "--login"), exitSessionExists); err != nil {
		_ = do(node, "-o", "delete")
		return err
	}
	if err := do(node, "-o", "update", "-n", "node.startup", "-v", "manual"); err != nil {
		t.opts.Logger.Error(err, "A session may be opened again at the next boot", "portal", portal, "target", r.Iqn)
	}
	return nil
}

// secret returns the secret for CHAP, if the volume has one.
func (t *iscsi) secret(ctx context.Context, pod *v1.Pod, source *v1.ISCSIPersistentVolumeSource) (map[string][]byte,
	error) {
	ref := source.SecretRef
	if ref == nil || !source.DiscoveryCHAPAuth && !source.SessionCHAPAuth {
		return nil, nil
	}
	namespace := ref.Namespace
	if namespace == "" {
		namespace = pod.Namespace
	}
	if t.opts.Secret == nil {
		return nil, errors.New("a secret for CHAP needs a node of a cluster")
	}
	secret, err := t.opts.Secret(ctx, namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("couldn't get secret %s/%s error: %w", namespace, ref.Name, err)
	}
	return secret.Data, nil
}

// authenticate sets the names and passwords for CHAP. Iscsiadm has them as arguments only, which other users can see as
// long as it runs.
func (t *iscsi) authenticate(ctx context.Context, of []string, prefix string, secret map[string][]byte) error {
	set := func(key, value, hidden string) error {
		args := []string{"-o", "update", "-n", prefix + key, "-v", value}
		_, err := t.iscsiadm(ctx, hidden, slices.Concat(of, args)...)
		return err
	}
	err := set("authmethod", "CHAP", "")
	for _, key := range []string{"username", "password", "username_in", "password_in"} {
		if value := string(secret[prefix+key]); err == nil && value != "" {
			err = set(key, value, value)
		}
	}
	return err
}

// copyIface makes the iface of a volume, with the name of its initiator.
func (t *iscsi) copyIface(ctx context.Context, r record) error {
	do := func(iface string, args ...string) (string, error) {
		return t.iscsiadm(ctx, "", slices.Concat([]string{"-m", "iface", "-I", iface, "-o"}, args)...)
	}
	shown, err := do(r.InitIface, "show")
	if err == nil {
		_, err = do(r.Iface, "new")
		err = ignoring(err, exitSessionExists)
	}
	for _, setting := range append(ifaceSettings(shown), [2]string{"iface.initiatorname", r.InitiatorName}) {
		if err == nil {
			_, err = do(r.Iface, "update", "-n", setting[0], "-v", setting[1])
		}
	}
	return err
}

// ifaceSettings parses the settings of an iface that its copy has, too.
func ifaceSettings(shown string) (settings [][2]string) {
	for line := range strings.Lines(shown) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if ok && strings.HasPrefix(name, "iface.") && value != "<empty>" && value != "" &&
			name != "iface.iscsi_ifacename" && name != "iface.initiatorname" {
			settings = append(settings, [2]string{name, value})
		}
	}
	return settings
}

// logout ends the session with a portal and deletes its record.
func (t *iscsi) logout(ctx context.Context, r record, portal string) error {
	for _, what := range [][]string{{"--logout"}, {"-o", "delete"}} {
		_, err := t.iscsiadm(ctx, "", slices.Concat([]string{"-m", "node", "-p", portal, "-T", r.Iqn, "-I", r.Iface},
			what)...)
		if err := ignoring(err, exitNothingFound, exitSessionNotFound); err != nil {
			return err
		}
	}
	return nil
}
