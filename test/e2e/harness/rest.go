package harness

import "k8s.io/client-go/rest"

// REST returns the configuration of a client that may do everything.
func (s *APIServer) REST() *rest.Config {
	return &rest.Config{
		Host: "https://" + apiServerAddr, BearerToken: apiServerToken, Dial: s.net.DialContext,
		TLSClientConfig: rest.TLSClientConfig{CAFile: s.path("cert.pem")},
	}
}
