"""verl's rollout server on a model of transformers: an actor that batches the requests that wait."""

import asyncio
import hashlib
import os

import ray
import torch
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput


class Server:
    def __init__(self, path, response_length, rank):
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
        self.response_length, self.rank, self.version = response_length, rank, 0
        self.waiting, self.task, self.asked = [], None, {}
        self.slow, self.held, self.lost = [], [], []

    async def ready(self):
        return True

    async def nothing(self, *args, **named):
        """What a server on a GPU does about its memory and its profiler."""

    sleep = wake_up = clear_kv_cache = release_kv_cache = resume_kv_cache = nothing
    abort_all_requests = resume_generation = start_profile = stop_profile = nothing

    async def load(self, state, version):
        self.model.load_state_dict(state)
        self.version = version or 0
        self._release()

    async def lose(self, prompt):
        """The next request of the prompt that begins with these tokens gets no answer."""
        self.lost = prompt

    async def hold(self, slow):
        """From now on prompts that begin with these tokens wait while the version of the weights is odd."""
        self.slow = slow
        self._release()

    def _release(self):
        self.waiting, self.held = self.waiting + self.held, []
        self._begin()

    async def forget(self):
        """Another run begins."""
        self.asked.clear()

    async def turns(self, keys):
        """The how manieth answer each of these is: asked of the first server by all."""
        turns = []
        for key in keys:
            self.asked[key] = self.asked.get(key, 0) + 1
            turns.append(self.asked[key])
        return turns

    async def generate(self, request_id, prompt_ids, sampling_params, image_data=None, video_data=None, **kwargs):
        future = asyncio.get_running_loop().create_future()
        self.waiting.append((list(prompt_ids), dict(sampling_params), future))
        self._begin()
        return await future

    def _begin(self):
        if self.waiting and (self.task is None or self.task.done()):
            self.task = asyncio.create_task(self._serve())

    async def _serve(self):
        while self.waiting:
            await asyncio.sleep(0.02)  # let a batch gather
            now, self.waiting = self.waiting, []
            lost = [request for request in now if self.lost and request[0][: len(self.lost)] == self.lost]
            if lost:
                now.remove(lost[0])
                self.lost = []
            if self.slow and self.version % 2:
                self.held += [request for request in now if request[0][: len(self.slow)] == self.slow]
                now = [request for request in now if request[0][: len(self.slow)] != self.slow]
            # Validation does not sample, and has no turn.
            keys = [(self.version, tuple(ids)) for ids, params, _ in now if params.get("temperature", 1.0)]
            turns = self.turns(keys) if self.rank == 0 else ray.get_actor("hf_server_0").turns.remote(keys)
            turn = iter(await turns)
            for ids, params, future in now:
                temperature = params.get("temperature", 1.0)
                future.set_result(self._answer(ids, temperature, next(turn) if temperature else 0))

    @torch.no_grad()
    def _answer(self, ids, temperature, turn):
        """The k-th answer to a prompt under these weights is always the same."""
        key = ((self.version, tuple(ids)), turn)
        rng = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[:7], "big"))
        row, logps = list(ids), []
        while len(row) - len(ids) < self.response_length:
            logp = (self.model(torch.tensor([row])).logits[0, -1].float() / (temperature or 1.0)).log_softmax(-1)
            token = int(torch.multinomial(logp.exp(), 1, generator=rng)) if temperature else int(logp.argmax())
            row.append(token)
            logps.append(float(logp[token]))
            if token == self.model.generation_config.eos_token_id:
                break
        return TokenOutput(
            token_ids=row[len(ids) :],
            log_probs=logps,
            stop_reason="completed",
            num_preempted=0,
            extra_fields={"global_steps": self.version},
        )


class Replica(RolloutReplica):
    async def launch_servers(self):
        self._server_handle = (
            ray.remote(Server)
            .options(name=f"hf_server_{self.replica_rank}", num_cpus=0, max_concurrency=self.max_concurrency)
            .remote(self.model_config.path, self.config.response_length, self.replica_rank)
        )
        await self._server_handle.ready.remote()
        self.servers, self._server_address = [self._server_handle], f"hf-{self.replica_rank}"


class Adapter(BaseRollout):
    """In the training worker: sends the weights to the server of its replica."""

    def __init__(self, config, model_config, device_mesh, *args, replica_rank=-1, **kwargs):
        super().__init__(config, model_config, device_mesh)
        rank = int(os.environ["RANK"])
        world = self.config.tensor_model_parallel_size * self.config.data_parallel_size
        self.replica, self.first = rank // world, rank % world == 0

    async def resume(self, tags):
        pass

    async def release(self):
        pass

    async def update_weights(self, weights, wire_format="named_tensors", global_steps=None, **kwargs):
        state = {name: tensor.detach().to("cpu", torch.float32).clone() for name, tensor in weights}
        if self.first:
            await ray.get_actor(f"hf_server_{self.replica}").load.remote(state, global_steps)
