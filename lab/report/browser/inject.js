// Injected by `rejoinder report --page` before the page's own scripts, which know nothing of it: it replaces what the
// microphone picks up by the report's recordings, and listens to what the page plays.
//
// `REPORT_WORKLET` is the address of worklet.js. `sendReports` hands reports, as JSON texts, to the report's client.

(() => {
  const RATE = 24000;
  const SEND_INTERVAL_MS = 100; // every message takes time that the page would have
  const FORWARDED = new Set([
    "session.created", "session.updated", "error", "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped", "input_audio_buffer.committed",
    "conversation.item.input_audio_transcription.completed", "response.created", "response.done",
    "response.output_audio_transcript.delta", "rejoinder.turn",
  ]);

  let waiting = []; // reports that are not sent yet
  let timer;
  let microphone; // the node that plays what the user says
  let kept; // from garbage collection
  let current = {}; // the event that the page is handling

  function report(kind, fields) {
    waiting.push(JSON.stringify({ kind, at: Date.now(), ...fields }));
    timer ??= setTimeout(() => {
      timer = undefined;
      window.sendReports(waiting);
      waiting = [];
    }, SEND_INTERVAL_MS);
  }

  async function workletNode(context, name, options) {
    await context.audioWorklet.addModule(REPORT_WORKLET);
    const processorOptions = { bufferMs: 1000 * context.baseLatency };
    const node = new AudioWorkletNode(context, name, { ...options, processorOptions });
    node.port.onmessage = ({ data }) => report(data.kind, data);
    return node;
  }

  // The browser's own capture and its echo cancellation keep running, at their cost, but the page gets our samples.
  const devices = navigator.mediaDevices;
  const openDevice = devices?.getUserMedia.bind(devices);
  if (devices) {
    devices.getUserMedia = async (constraints) => {
      const device = await openDevice(constraints);
      const context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
      await context.resume();
      microphone = await workletNode(context, "report-microphone", { numberOfInputs: 0, outputChannelCount: [1] });
      const destination = new MediaStreamAudioDestinationNode(context, { channelCount: 1 });
      microphone.connect(destination);
      kept = { device, context, destination };
      return destination.stream;
    };
  }

  const connect = AudioNode.prototype.connect;
  AudioNode.prototype.connect = function (target, ...rest) {
    if (target instanceof AudioDestinationNode) listen(this);
    return connect.call(this, target, ...rest);
  };

  async function listen(player) {
    const listener = await workletNode(player.context, "report-listener", { numberOfOutputs: 0 });
    connect.call(player, listener);
    const post = player.port.postMessage.bind(player.port);
    player.port.postMessage = (data, transfer) => {
      if (data instanceof Int16Array) {
        const { response_id, item_id } = current;
        listener.port.postMessage({
          kind: "queued", response_id, item_id, samples: data.length, arrived: Date.now(),
        });
      } else {
        listener.port.postMessage({ kind: "stopped" }); // the only other message is "clear"
      }
      post(data, transfer);
    };
  }

  function decode(text) {
    return new Int16Array(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer);
  }

  window.rejoinderReport = {
    /** Pass on server events from now on. */
    attach() {
      const { realtime } = window.rejoinder;
      const receive = realtime.receive.bind(realtime);
      realtime.receive = (event) => {
        current = event;
        if (FORWARDED.has(event.type)) report("event", { event });
        receive(event);
      };
      realtime.addEventListener("lost", ({ detail }) => report("lost", { reason: detail.reason }));
    },
    /** Speak 16-bit samples, in base64, from the moment `at` on or at once. */
    play({ id, at, pcm }) {
      microphone.port.postMessage({ id, at, pcm: decode(pcm) });
    },
    setBackground(pcm) {
      microphone.port.postMessage({ background: pcm && decode(pcm) });
    },
    cancelResponse() {
      window.rejoinder.realtime.send("response.cancel");
    },
    async stopPlayback() {
      const { loudspeaker, realtime } = window.rejoinder;
      for (const { itemId, heardMs } of await loudspeaker.clear()) {
        realtime.send("conversation.item.truncate", { item_id: itemId, content_index: 0, audio_end_ms: heardMs });
      }
    },
  };
})();
