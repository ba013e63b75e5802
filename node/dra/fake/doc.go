// Package fake has a scripted driver and claims in memory, with which an agent with dynamic resources is tested without
// devices, without an API server and in virtual time.
//
//	claims, driver := fake.NewClaims(), fake.NewDriver("gpu.example.com")
//	manager, err := dra.New(dir, claims, dra.Options{Slices: claims})
//	…
//	manager.Add(driver.Name(), driver).SetConnected(true)
//	claims.Set(fake.Allocated("default", "gpu", driver.Name(), pod))
//	fake.Use(pod, "gpu")
//
// # Guarantees
//
// A [Driver] records each call before it answers. The only goroutines are those of its callers. Calls that wait end
// with their context.
package fake
