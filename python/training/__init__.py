"""Training tools of Convoy: data, the deployed spiking network, many networks trained at once, optimiser, teacher."""
