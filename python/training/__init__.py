"""Training tools of Convoy: data, the deployed spiking network, many networks trained together, optimiser, teacher."""
