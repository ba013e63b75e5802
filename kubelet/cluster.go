package kubelet

import (
	"cmp"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"

	"github.com/kubeletkit/kubeletkit"
	"github.com/kubeletkit/kubeletkit/cluster"
	"github.com/kubeletkit/kubeletkit/cluster/credentials"
	"github.com/kubeletkit/kubeletkit/cluster/iptables"
	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	prommetrics "github.com/kubeletkit/kubeletkit/metrics/prometheus"
)

// member is the agent's membership of a cluster; nil without --kubeconfig.
type member struct {
	*cluster.Node
	credentials *credentials.Client
	metrics     *metrics
}

// newMember returns the membership that the settings describe, with the devices of the node, if there are any, and with
// resource claims if claims is true, and volumes of CSI drivers if drivers is. declared returns the features that the
// node declares. It makes no connection.
func newMember(s *config.Settings, m *metrics, devs *nodeDevices, claims, drivers bool, declared func() []string,
	log logr.Logger) (*member, error) {
	if s.Kubeconfig == "" {
		return nil, nil
	}
	name, err := s.NodeName()
	if err != nil {
		return nil, err
	}
	copts := s.CredentialsOptions()
	copts.Logger = log.WithName("credentials")
	measured, err := prommetrics.NewClientCertificate(m.registry)
	if err != nil {
		return nil, err
	}
	copts.Metrics = m.ends.of("client", measured)
	creds, err := credentials.Load(name, copts)
	if err != nil {
		return nil, err
	}
	nopts, err := s.NodeOptions()
	if err != nil {
		return nil, err
	}
	if nopts.Startup, err = prommetrics.NewNodeStartup(m.registry, bootTime()); err != nil {
		return nil, err
	}
	nopts.DeclaredFeatures = declared
	nopts.Available, nopts.HeartbeatFailed = creds.Available, creds.CloseConnections
	nconfig := cluster.Config{
		NodeName: name, REST: restConfig(s, m, creds.Config()), Budgets: budgets(s), Node: nopts,
		MaxImages: int(*s.NodeStatusMaxImages), ResourceClaims: claims, CSI: drivers, DeferResizes: s.DeferResizes(),
		CompareTaints: s.CompareTaints(), Logger: log.WithName("cluster"),
	}
	if devs != nil { // nil in an interface would not be nil
		nconfig.Devices = devs
	}
	node, err := cluster.New(nconfig)
	return &member{node, creds, m}, err
}

// restConfig sets the user agent, which is in the logs of the API server, and the media type. It
// counts the requests.
func restConfig(s *config.Settings, m *metrics, c *rest.Config) *rest.Config {
	c.UserAgent, c.ContentType = s.Program().String(), s.ContentType
	c.Wrap(m.rest.Wrap)
	return c
}

// apiBudget translates the settings, in which 0 is client-go's default, as with kubelet.
func apiBudget(s *config.Settings) cluster.Budget {
	return cluster.Budget{QPS: cmp.Or(float32(*s.KubeAPIQPS), rest.DefaultQPS), Burst: int(s.KubeAPIBurst)}
}

// budgets translates the settings. For events, 0 is no limit.
func budgets(s *config.Settings) cluster.Budgets {
	api := apiBudget(s)
	events := cluster.Budget{QPS: cmp.Or(float32(*s.EventRecordQPS), -1), Burst: int(s.EventBurst)}
	return cluster.Budgets{Status: api, Objects: api, Events: events}
}

// add adds what runs beside the membership, which is a component of the agent.
func (m *member) add(agent *kubeletkit.Agent, s *config.Settings, log logr.Logger) error {
	if *s.MakeIPTablesUtilChains && os.Geteuid() == 0 { // for others it could only fail
		if err := agent.Add("iptables",
			iptables.New(iptables.Options{Logger: log.WithName("iptables")}).Run); err != nil {
			return err
		}
	}
	return agent.Add("credentials", m.credentials.Run)
}
